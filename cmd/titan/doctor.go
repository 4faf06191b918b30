package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"titan/pjrt/plugins"
)

// finding is one line of the doctor's report.
type finding struct {
	Check    string `json:"check"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`
	Says     string `json:"says"`
	Mend     string `json:"mend,omitempty"`
}

func newDoctor() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what titan needs on this machine and say how to mend what is missing",
		Args:  exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			fs := examine(c.Context())
			broken := 0
			for _, f := range fs {
				if !f.OK && f.Required {
					broken++
				}
			}
			if asJSON {
				if err := json.NewEncoder(c.OutOrStdout()).Encode(fs); err != nil {
					return err
				}
			} else {
				for _, f := range fs {
					mark := "ok     "
					switch {
					case !f.OK && f.Required:
						mark = "BROKEN "
					case !f.OK:
						mark = "missing"
					}
					fmt.Fprintf(c.OutOrStdout(), "%s  %-12s %s\n", mark, f.Check, f.Says)
					if f.Mend != "" {
						fmt.Fprintf(c.OutOrStdout(), "         %-12s → %s\n", "", f.Mend)
					}
				}
			}
			if broken > 0 {
				return fmt.Errorf("%d required check(s) failed; see above", broken)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	return c
}

func examine(ctx context.Context) []finding {
	fs := []finding{
		{Check: "titan", OK: true, Says: version() + ", built with " + runtime.Version()},
		examineMachine(), examinePip(ctx), examineCache(),
	}
	for _, s := range plugins.List() {
		fs = append(fs, examinePlugin(ctx, s))
	}
	return fs
}

func examineMachine() finding {
	f := finding{Check: "machine", Required: true, OK: runtime.GOOS == "linux" && runtime.GOARCH == "amd64"}
	f.Says = fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if !f.OK {
		f.Mend = "plugins are pinned for linux/amd64; elsewhere name your own in TITAN_PLUGIN_CPU"
	}
	return f
}

func examinePip(ctx context.Context) finding {
	f := finding{Check: "pip", Mend: "apt-get install python3-pip (only needed to install plugins)"}
	out, err := exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Output()
	if err != nil {
		f.Says = "python3 -m pip does not run: " + err.Error()
		return f
	}
	f.OK, f.Mend = true, ""
	f.Says, _, _ = strings.Cut(strings.TrimSpace(string(out)), " from ")
	return f
}

func examineCache() finding {
	f := finding{Check: "cache", Required: true}
	dir, err := plugins.Dir()
	if err != nil {
		f.Says, f.Mend = err.Error(), "set HOME or XDG_CACHE_HOME"
		return f
	}
	at := dir // the nearest folder that exists
	for at != "/" {
		if _, err := os.Stat(at); err == nil {
			break
		}
		at = filepath.Dir(at)
	}
	free, err := plugins.FreeSpace(at)
	if err != nil {
		f.Says = err.Error()
		return f
	}
	f.OK, f.Says = true, fmt.Sprintf("%s, %.1f GB free", dir, float64(free)/1e9)
	return f
}

func examinePlugin(ctx context.Context, s plugins.Status) finding {
	f := finding{Check: s.Name + " plugin", Required: s.Name == "cpu"}
	if s.Problem != "" {
		f.Says = "not usable"
		_, err := plugins.Find(s.Name)
		var missing *plugins.NotInstalledError
		var damaged *plugins.DamagedError
		switch {
		case errors.As(err, &missing):
			f.Says, f.Mend = "not installed ("+s.Pinned+")", missing.Command()
		case errors.As(err, &damaged):
			f.Says, f.Mend, f.Required = damaged.Path+" "+damaged.What, "titan plugin install --force "+s.Name, true
		default:
			f.Says, f.Mend = s.Problem, "unset "+plugins.EnvVar(s.Name)+" or let it name a PJRT plugin library"
		}
		return f
	}
	if err := plugins.Verify(s.Name); err != nil {
		f.Says, f.Mend, f.Required = err.Error(), "titan plugin install --force "+s.Name, true
		return f
	}
	p, err := probe(ctx, s.Name, s.Path)
	if err != nil {
		f.Says, f.Mend = err.Error(), "titan plugin install --force "+s.Name
		if s.Source != "cache" {
			f.Mend = "unset " + s.Source + " or let it name a PJRT plugin library"
		}
		return f
	}
	f.OK = true
	f.Says = fmt.Sprintf("%s, PJRT API %s, %s", s.Pinned, p.API, p.Platform)
	if s.Source != "cache" {
		f.Says = fmt.Sprintf("%s (%s), PJRT API %s, %s", s.Path, s.Source, p.API, p.Platform)
	}
	if p.Devices > 0 {
		f.Says += fmt.Sprintf(", %d device(s)", p.Devices)
	}
	return f
}
