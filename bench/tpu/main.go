// Command tpu plans the steps of which a compiled result of MaxText is known, with
// the same compiler at the same effort, and prints both as a table.
//
//	make build
//	go run ./bench/tpu --titan bin/titan --cases B1,B2
//
// It needs the compiler for TPU (titan plugin install tpu) and no TPU. What is in
// the compile cache is not compiled again. Plans are kept as JSON under --out.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"titan/plan"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tpu:", err)
		os.Exit(1)
	}
}

func run() error {
	titan := flag.String("titan", "bin/titan", "the titan `command`")
	out := flag.String("out", "outputs/bench/tpu", "`folder` for plans and for what their commands say")
	only := flag.String("cases", "", "of the cases only these, such as `B1,B2`; with an effort, B1/default")
	flag.Parse()
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o777); err != nil {
		return err
	}
	var results []result
	for _, c := range chosen {
		fmt.Fprintf(os.Stderr, "planning %s at %s\n", c.name, c.effort)
		r, err := c.plan(*titan, *out)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", c.name, c.effort, err)
		}
		results = append(results, r)
	}
	_, err = io.WriteString(os.Stdout, table(results))
	return err
}

// choose returns the cases that a list names; all of the default list for "".
func choose(list string) ([]testCase, error) {
	if list == "" {
		return cases, nil
	}
	var out []testCase
	for _, want := range strings.Split(list, ",") {
		found := false
		for _, c := range cases {
			if want == c.name || want == c.name+"/"+c.effort {
				out, found = append(out, c), true
			}
		}
		if !found {
			return nil, fmt.Errorf("--cases: there is no %q; a case is a name such as B1, or one with its effort, such as B1/default", want)
		}
	}
	return out, nil
}

// result is a case with what titan plan says of it.
type result struct {
	testCase
	report plan.Report
	before time.Duration // from the start of the command to that of the compiler
}

// plan runs titan plan in a process of its own.
func (c testCase) plan(titan, out string) (result, error) {
	r := result{testCase: c}
	file := filepath.Join(out, c.name+"-"+c.effort)
	args := []string{"plan", "--config", filepath.Join("bench", "tpu", c.recipe), "--effort", c.effort, "--no-search", "--json", file + ".json"}
	cmd := exec.Command(titan, args...)
	log, err := os.Create(file + ".txt")
	if err != nil {
		return r, err
	}
	defer log.Close()
	cmd.Stdout = log
	said, err := cmd.StderrPipe()
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	last := ""
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if last = lines.Text(); r.before == 0 && strings.HasPrefix(last, "compiling for ") {
			r.before = time.Since(start)
		}
	}
	if err := cmd.Wait(); err != nil {
		return r, errors.Join(errors.New(last), err)
	}
	data, err := os.ReadFile(file + ".json")
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r.report); err != nil {
		return r, fmt.Errorf("%s.json: %w", file, err)
	}
	if r.report.Prediction == nil {
		return r, fmt.Errorf("the step does not fit: see %s.txt", file)
	}
	return r, nil
}
