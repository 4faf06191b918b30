package main

// testCase is a step at a level of the compiler's effort.
type testCase struct {
	name, recipe, effort string
	maxText              figures
}

// figures are what is compared; 0: not known.
type figures struct {
	peak, temp float64 // GiB of a device
	cycles     float64 // millions, that the compiler estimates, without tile kernels
	sent       float64 // GB that a device sends in a step
	cpu        float64 // seconds of compiling, of all processors
	program    float64 // KB of StableHLO
	host       float64 // GiB that a device keeps in its host's memory, beside peak
}

// cases have the results of MaxText e591f30c with JAX 0.12.0.1, compiled by libtpu
// 0.0.52 with its default options but xla_jf_spmd_threshold_for_windowed_einsum_mib,
// which the recipes have, too. What it keeps for the backward pass in B3, B4 and B5 is
// said in their recipes. Before it compiles MaxText takes 15 to 20 processor
// seconds, 30 to 42 by the clock.
var cases = []testCase{
	{"B1", "b1.toml", "quick", figures{1.706, 0.857, 497.3, 3.281, 17, 224, 0}},
	{"B1", "b1.toml", "O1", figures{1.71, 0.857, 201, 3.281, 29, 224, 0}},
	{"B1", "b1.toml", "default", figures{1.788, 0.843, 91.4, 3.281, 143, 224, 0}},
	{"B1b", "b1b.toml", "quick", figures{3.840, 2.735, 820.1, 5.498, 66, 225, 0}},
	{"B1b", "b1b.toml", "O1", figures{3.840, 2.748, 303.4, 5.498, 119, 225, 0}},
	{"B2", "b2.toml", "quick", figures{6.761, 3.274, 207.5, 13.676, 109, 649, 0}},
	{"B2e", "b2e.toml", "quick", figures{7.215, 4.374, 303.6, 14.886, 127, 730, 0}},
	{"B3", "b3.toml", "default", figures{84.9, 80.4, 21520, 420, 747, 440, 0}},
	{"B4", "b4.toml", "default", figures{73.9, 75.2, 42600, 1421, 871, 1106, 47}},
	{"B5", "b5.toml", "default", figures{28.4, 27.5, 5900, 62, 951, 410, 28}},
}
