// Package kernels holds tile kernels: programs that one core runs on tiles held
// in its vector memory. A kernel is defined once, in Go, and that definition is
// printed as a Mosaic custom call for TPUs and interpreted as plain StableHLO
// everywhere else:
//
//	k := kernels.New("scale")
//	i := k.Grid(m/256, kernels.Parallel)
//	x := k.In("x", graph.T(dtype.BF16, m, n), []int{256, n}, i, k.Int(0))
//	y := k.Out("y", graph.T(dtype.BF16, m, n), []int{256, n}, i, k.Int(0))
//	twice := kernels.Mul(kernels.Convert(x.Load(), dtype.F32), k.F32(2))
//	y.Store(kernels.Convert(twice, dtype.BF16))
//	out := k.Call(target, x0)[0] // x0 is a value of the tensor program
//
// Ready for use are [GroupedMatmul] and [Attention], with their gradients.
// docs/kernels.md explains the model and its limits.
package kernels
