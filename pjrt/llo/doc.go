// Package llo reads the code that the compiler for TPU has scheduled, as it writes
// it to a folder when told to: bundles of instructions, of which a core issues one
// each cycle.
//
//	code, err := llo.Read(file)
//	loop, err := code.Grid()
//	cycles := loop.Cycles([]bool{true, false})
//
// It knows of them what the time of a tile kernel depends on: how many there are in
// the loop over the kernel's grid, and in each branch of it.
package llo
