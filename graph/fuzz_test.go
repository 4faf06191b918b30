package graph_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

// Random programs of nested loops, branches, checkpoints, manual regions with
// collectives, gradients, contractions and everything else: results and
// gradients must be those of the same program without regions, and gradients
// those of finite differences.
//
// TITAN_LONG=1 runs thousands, TITAN_FUZZ_PROGRAMS=n that many,
// TITAN_FUZZ_FROM=n starts at another seed;
// TITAN_FUZZ_SEED=n[,budget] runs one.
func TestFuzz(t *testing.T) {
	m := newMesh(t, axis(fuzzAxes[0], fuzzAxisSize), axis(fuzzAxes[1], fuzzAxisSize))
	if s := os.Getenv("TITAN_FUZZ_SEED"); s != "" {
		seed, budget := uint64(0), 0
		_, _ = fmt.Sscanf(s, "%d,%d", &seed, &budget)
		if budget == 0 {
			budget = fuzzBudget(seed)
		}
		p := generate(seed, budget)
		t.Log(p)
		require.NoError(t, fuzzOne(t, m, p))
		return
	}
	programs, batch := 60, 20
	if long {
		programs = 4000
	}
	if n, err := strconv.Atoi(os.Getenv("TITAN_FUZZ_PROGRAMS")); err == nil {
		programs = n
	}
	from, _ := strconv.Atoi(os.Getenv("TITAN_FUZZ_FROM"))
	start := time.Now()
	for first := from; first < from+programs; first += batch {
		if long {
			t.Logf("programs from %d", first) // a crash of the plugin says nothing else
		}
		var ps []*fprogram
		for k := range batch {
			seed := uint64(first + k)
			ps = append(ps, generate(seed, fuzzBudget(seed)))
		}
		for i, err := range fuzzMany(t, m, ps) {
			if err != nil {
				p := ps[i]
				if smaller, e := shrink(t, m, p); smaller != nil {
					p, err = smaller, e
				}
				require.Failf(t, "fuzz", "%v\n%v\nTITAN_FUZZ_SEED=%d,%d runs it alone", err, p, p.seed, p.budget)
			}
		}
	}
	t.Logf("%d programs in %v", programs, time.Since(start).Round(time.Second))
}

func fuzzBudget(seed uint64) int { return 4 + int(seed*7919%11) }

// fuzzMany checks programs, which are compiled together.
func fuzzMany(t testing.TB, m *mesh.Mesh, ps []*fprogram) []error {
	t.Helper()
	errs := make([]error, len(ps))
	var cases []checked
	for _, p := range ps {
		cases = append(cases, p.checked(p.seed))
	}
	s, err := prepare(t, m, cases)
	if err != nil { // one of them is to blame
		for i, p := range ps {
			errs[i] = fuzzOne(t, m, p)
		}
		return errs
	}
	defer s.close()
	s.measure(t)
	for i, c := range s.cases {
		if errs[i] = c.check(); errs[i] != nil {
			errs[i] = fuzzOne(t, m, ps[i])
		}
	}
	return errs
}

// fuzzOne checks one program. Differences that disagree where a branch, a
// maximum or an order changes say nothing, so they must disagree at several
// points.
func fuzzOne(t testing.TB, m *mesh.Mesh, p *fprogram) (err error) {
	t.Helper()
	for k := range uint64(4) {
		s, e := prepare(t, m, []checked{p.checked(p.seed + 1000*k)})
		if e != nil {
			return e
		}
		s.measure(t)
		err = s.cases[0].check()
		s.close()
		if !errors.As(err, new(wrongGradient)) {
			return err
		}
	}
	return err
}

// shrink looks for a smaller program of the same seed that fails.
func shrink(t testing.TB, m *mesh.Mesh, p *fprogram) (*fprogram, error) {
	t.Helper()
	for budget := 1; budget < p.budget; budget++ {
		q := generate(p.seed, budget)
		if err := fuzzOne(t, m, q); err != nil {
			return q, err
		}
	}
	return nil, nil
}
