package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// fact is what must be the same on all hosts.
type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// same makes sure that all hosts have the same facts, before devices wait for
// each other over a difference.
func (h *hosts) same(ctx context.Context, key string, facts ...fact) error {
	if h.group == nil {
		return nil
	}
	raw, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	replies, err := h.group.ExchangeFor(ctx, h.patience(), "train/same/"+key, raw)
	if err != nil {
		return fmt.Errorf("train: comparing %s with the other hosts: %w", key, err)
	}
	all := make([][]fact, len(replies))
	for i, r := range replies {
		if err := json.Unmarshal(r, &all[i]); err != nil {
			return fmt.Errorf("train: the %s of process %d: %w", key, i, err)
		}
	}
	return compare(all, h.group.Name)
}

// patience is how long to wait for others that do, before training, what this
// process has done: twice as long, and what the recipe says.
func (h *hosts) patience() time.Duration {
	return seconds(h.comm.InitTimeout) + 2*time.Since(h.joined)
}

// compare refuses facts that are not those of process 0.
func compare(all [][]fact, name func(process int) string) error {
	var faults []string
	for i, facts := range all {
		if len(facts) != len(all[0]) {
			faults = append(faults, fmt.Sprintf("process %s compares %d things, process %s %d", name(i), len(facts), name(0), len(all[0])))
			continue
		}
		for k, f := range facts {
			if f != all[0][k] {
				faults = append(faults, fmt.Sprintf("%s: process %s has %s, process %s has %s", f.Name, name(i), f.Value, name(0), all[0][k].Value))
			}
		}
	}
	if faults == nil {
		return nil
	}
	const most = 8
	if n := len(faults); n > most {
		faults = append(faults[:most], fmt.Sprintf("and %d more differences", n-most))
	}
	return fmt.Errorf("train: the hosts would not run the same: %s; start the same titan with the same recipe, data and plugin on all", strings.Join(faults, "; "))
}

// sameRun compares what decides a program and its batches.
func (t *trainer) sameRun(ctx context.Context, version string) error {
	plugin := t.machine.Client.PlatformVersion()
	return t.hosts.same(ctx, "run", fact{"titan", version}, fact{"recipe", t.recipe.Hash()}, fact{"plugin", plugin}, fact{"data", t.data})
}

// samePrograms compares what was compiled, with the devices it is for.
func (t *trainer) samePrograms(ctx context.Context) error {
	if t.hosts.group == nil {
		return nil
	}
	list := []*Compiled{t.exe}
	if t.eval != nil {
		list = append(list, t.eval.exe)
	}
	var facts []fact
	for _, c := range list {
		h := sha256.New()
		fmt.Fprintf(h, "%v %v\n%s", c.machine.Mesh.Axes(), c.machine.Mesh.IDs(), c.Module.StableHLO())
		facts = append(facts, fact{"program " + c.Module.Name(), hex.EncodeToString(h.Sum(nil))})
	}
	return t.hosts.same(ctx, "programs", facts...)
}

// any reports whether any host says so.
func (h *hosts) any(ctx context.Context, key string, mine bool) (bool, error) {
	if h.group == nil {
		return mine, nil
	}
	replies, err := h.group.ExchangeFor(ctx, seconds(h.comm.SaveTimeout), "train/"+key, fmt.Append(nil, mine))
	for _, r := range replies {
		mine = mine || string(r) == "true"
	}
	return mine, err
}
