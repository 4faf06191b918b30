// Command fsdp is the worked example of docs/graph.md: one training step, a
// stack of residual layers under FSDP on eight virtual CPU devices, traced,
// compiled and run. Start it with `go run ./examples/fsdp`.
package main

import (
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"titan/dtype"
	"titan/graph"
	"titan/mesh"
	"titan/pjrt"
	"titan/pjrt/plugins"
	"titan/sharding"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Stdout, 8); err != nil {
		log.Fatal("fsdp: ", err)
	}
}

func run(out io.Writer, steps int) error {
	path, err := plugins.Find("cpu")
	if err != nil {
		return err
	}
	plugin, err := pjrt.OpenWith(path, pjrt.OpenOptions{Env: map[string]string{"TF_CPP_MIN_LOG_LEVEL": "3"}})
	if err != nil {
		return err
	}
	client, err := plugin.NewClient(pjrt.ClientOptions{Devices: 8})
	if err != nil {
		return err
	}
	defer client.Close()
	m, err := mesh.New([]mesh.Axis{{Name: "dp_shard", Size: 8}}, nil)
	if err != nil {
		return err
	}
	step, err := traceStep(m)
	if err != nil {
		return err
	}
	return runSteps(out, client, m, step, steps)
}

const (
	layers, dim, batch = 4, 16, 32
)

func traceStep(m *mesh.Mesh) (*graph.Module, error) {
	weights := sharding.P(nil, "dp_shard")
	return graph.Trace("step", m, func(b *graph.Builder) error {
		w := b.Input("w", graph.T(graph.F32, layers, dim, dim), graph.Sharded(weights), graph.Donated())
		x := b.Input("x", graph.T(graph.F32, batch, dim), graph.Sharded(sharding.P("dp_shard")))
		y := b.Input("y", graph.T(graph.F32, batch, dim), graph.Sharded(sharding.P("dp_shard")))

		layer := func(c, row []*graph.Value) (next, ys []*graph.Value) {
			// FSDP: gathered for use, the gradient scattered again.
			whole := graph.Constrain(row[0], sharding.P(nil, nil), graph.Cotangent(sharding.P("dp_shard")))
			h := graph.Name(graph.Einsum("bi,io->bo", c[0], whole), "hidden")
			return []*graph.Value{graph.Add(c[0], graph.Tanh(h))}, nil
		}
		keep := graph.SaveNames("hidden")
		out, _ := b.Layers([]*graph.Value{x}, []*graph.Value{w}, layer, graph.LayersOptions{Remat: &keep})

		loss := graph.Mean(graph.Square(graph.Sub(out[0], y)))
		grads := graph.Grad(loss, w)
		b.Output("loss", loss)
		b.Output("w", graph.Sub(w, graph.MulScalar(grads[0], 2)), graph.Into(w))
		return nil
	})
}

func runSteps(out io.Writer, c *pjrt.Client, m *mesh.Mesh, step *graph.Module, steps int) error {
	exe, err := c.Compile([]byte(step.StableHLO()), pjrt.CompileOptions{Partitions: m.Size(), Shardy: true, DeviceIDs: m.IDs()})
	if err != nil {
		return err
	}
	defer exe.Close()

	// args[d] are the arguments of device d: its shards of the inputs.
	args := make([][]*pjrt.Buffer, m.Size())
	defer func() { pjrt.CloseBuffers(args...) }()
	for i, in := range step.Inputs() {
		data := make([]float32, in.Type.Elements())
		for k := range data {
			data[k] = float32(math.Sin(float64(k*(i+1)))) / 4
		}
		shape, err := in.Spec.Shard(m, in.Type.Shape)
		if err != nil {
			return err
		}
		shards, err := sharding.Split(pjrt.AsBytes(data), 4, in.Type.Shape, *in.Spec, m)
		if err != nil {
			return err
		}
		for d, shard := range shards {
			buf, err := c.Put(shard, in.Type.DType, shape, exe.Devices()[d])
			if err != nil {
				return err
			}
			args[d] = append(args[d], buf)
		}
	}
	for s := range steps {
		outs, err := exe.Run(args, pjrt.ExecuteOptions{})
		if err != nil {
			return err
		}
		loss, err := outs[0][0].Bytes()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "step %d loss %.3f\n", s, dtype.Float(dtype.F32, loss, 0))
		for d := range outs {
			outs[d][0].Close()
			args[d][0].Close() // donated: its memory went to the new w
			args[d][0] = outs[d][1]
		}
	}
	return nil
}
