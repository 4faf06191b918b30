// Package runs is the directory of a run: what a training run writes about itself
// while it goes on, and how that is read again, by people's tools and by titan's.
//
//	run, warnings, err := runs.Open("outputs/llama3_8b")
//	for _, p := range run.Train {
//		fmt.Println(p.Step, p.Values["loss_metrics/global_avg_loss"])
//	}
//	fmt.Println(run.Goodput().Percent())
//
// A run is one folder, job.dump_folder. A process that trains in it is an attempt;
// a run that is stopped and started again has several. The files are
//
//	run.json       the record: the attempts, with versions, machine, programs, checkpoints and figures ([Record])
//	recipe.toml    the recipe of the last attempt as it was resolved, each value with its origin
//	metrics.jsonl  the figures of the steps, a JSON object a line ([Point]); a line of kind "start" begins an attempt
//	log.txt        what the terminal showed, without colours
//	tb/            the figures for TensorBoard
//	checkpoint/    the checkpoints
//
// (the names after the first are the recipe's; the record has them). run.json and
// recipe.toml are replaced whole, by renaming; the others only grow, by whole lines. So
// the folder may be copied at any time and read after a crash at any byte.
package runs
