package graph_test

import (
	"fmt"
	"log"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// The worked example of docs/graph.md: the blocks there stand here too.

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

func runSteps(c *pjrt.Client, m *mesh.Mesh, step *graph.Module, steps int) error {
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
		fmt.Printf("step %d loss %.3f\n", s, dtype.Float(dtype.F32, loss, 0))
		for d := range outs {
			outs[d][0].Close()
			args[d][0].Close() // donated: its memory went to the new w
			args[d][0] = outs[d][1]
		}
	}
	return nil
}

func Example() {
	m, err := mesh.New([]mesh.Axis{{Name: "dp_shard", Size: 8}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	step, err := traceStep(m)
	if err != nil {
		log.Fatal(err)
	}
	if err := runSteps(exampleClient(), m, step, 4); err != nil {
		log.Fatal(err)
	}
	// Output:
	// step 0 loss 0.062
	// step 1 loss 0.049
	// step 2 loss 0.044
	// step 3 loss 0.041
}

// exampleClient is the tests' CPU client; a program opens a plugin instead.
func exampleClient() *pjrt.Client { return xlatest.CPU(failing{}) }

// failing lets an example, which has no testing.TB, use the tests' client.
type failing struct{ testing.TB }

func (failing) Helper() {}

func (failing) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

// What the page shows must be what runs.
func TestDocExample(t *testing.T) {
	page, err := os.ReadFile("../docs/graph.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(blocks), 2)
	for _, b := range blocks {
		require.Contains(t, string(source), b[1])
	}
	m, err := mesh.New([]mesh.Axis{{Name: "dp_shard", Size: 8}}, nil)
	require.NoError(t, err)
	step, err := traceStep(m)
	require.NoError(t, err)
	text := step.StableHLO()
	for _, b := range regexp.MustCompile("(?s)```mlir\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(b[1]) {
			if line = strings.TrimSpace(line); line != "" && line != "…" {
				require.Contains(t, text, line)
			}
		}
	}
}
