package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"titan/checkpoint/hfmodel"
	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/pjrt"
	"titan/sharding"
	"titan/train"
)

// start puts the initial state on the devices and makes the batch: both from
// o.data, or, without it, parameters of titan's initialiser and random tokens.
func (l *loop) start(o *options, family string, m *train.Machine) error {
	tokens, err := o.tokens(l.options.Model.VocabSize)
	if err != nil {
		return err
	}
	if l.batch, err = l.arrays(tokens, o.seq); err != nil {
		return err
	}
	if o.data == "" {
		return l.init(m)
	}
	file := filepath.Join(o.data, "model.safetensors")
	theirs, err := safetensors.Open(file)
	if err != nil {
		return err
	}
	defer theirs.Close()
	src, err := hfmodel.View(family, l.options.Model, file, theirs, dtype.F32)
	if err != nil {
		return err
	}
	params := len(l.options.Model.Params())
	l.state = make([][]*pjrt.Buffer, len(l.exe.Devices))
	for i, v := range l.step.Vars {
		whole := make([]byte, v.Type.Elements()*v.Type.DType.Size())
		if i < params {
			if err := src.ReadRegion(v.Name, sharding.Whole(v.Type.Shape), whole); err != nil {
				return err
			}
		}
		parts, err := l.exe.Put(i, whole)
		if err != nil {
			return err
		}
		for p := range parts {
			l.state[p] = append(l.state[p], parts[p])
		}
	}
	return nil
}

// init makes the initial state on the devices.
func (l *loop) init(m *train.Machine) error {
	mod, err := train.BuildInit(0, m.Mesh, l.options.Model, l.step.Vars)
	if err != nil {
		return err
	}
	exe, err := m.Compile(mod)
	if err != nil {
		return err
	}
	defer exe.Close()
	l.state, err = exe.Exe.Run(make([][]*pjrt.Buffer, m.Mesh.Size()), pjrt.ExecuteOptions{})
	return err
}

// tokens returns batch rows of seq+1 tokens.
func (o *options) tokens(vocab int) ([]int32, error) {
	out := make([]int32, o.batch*(o.seq+1))
	if o.data == "" {
		r := rand.New(rand.NewPCG(12345, 0))
		for i := range out {
			out[i] = int32(r.IntN(vocab))
		}
		return out, nil
	}
	file, err := safetensors.Open(filepath.Join(o.data, "batch.safetensors"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := file.Tensor("tokens")
	if err != nil {
		return nil, err
	}
	if len(t.Shape) != 2 || t.Shape[0] != o.batch || t.Shape[1] != o.seq+1 || t.DType != dtype.S32 {
		return nil, fmt.Errorf("%s: tokens is %v %v and should be s32 [%d %d]", file.Name(), t.DType, t.Shape, o.batch, o.seq+1)
	}
	return out, file.ReadRegion("tokens", sharding.Whole(t.Shape), pjrt.AsBytes(out))
}

// arrays are the inputs of the step made of rows of seq+1 tokens.
func (l *loop) arrays(tokens []int32, seq int) ([][]byte, error) {
	var in, labels []int32
	for at := 0; at < len(tokens); at += seq + 1 {
		in, labels = append(in, tokens[at:at+seq]...), append(labels, tokens[at+1:at+seq+1]...)
	}
	valid := make([]float32, len(in))
	for i := range valid {
		valid[i] = 1
	}
	var out [][]byte
	for _, v := range l.step.Batch {
		switch v.Name {
		case train.BatchTokens:
			out = append(out, pjrt.AsBytes(in))
		case train.BatchLabels:
			out = append(out, pjrt.AsBytes(labels))
		case train.BatchValid:
			out = append(out, pjrt.AsBytes(valid))
		default:
			return nil, fmt.Errorf("the recipe asks for batches with %s, which this command does not make", v.Name)
		}
	}
	return out, nil
}
