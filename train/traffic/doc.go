// Package traffic says what the devices of a mesh exchange in a training step: on
// paper, by the formulas of docs/parallelism.md ([Step.Transfers]), and as a
// compiled program does it ([Compiled]). Tests hold one against the other.
package traffic
