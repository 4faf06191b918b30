package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"titan/launch"
	"titan/pjrt/plugins"
	"titan/train"
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
			findings := examine(c.Context())
			broken := 0
			for _, f := range findings {
				if !f.OK && f.Required {
					broken++
				}
			}
			if asJSON {
				if err := json.NewEncoder(c.OutOrStdout()).Encode(findings); err != nil {
					return err
				}
			} else {
				for _, f := range findings {
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
	findings := []finding{
		{Check: "titan", OK: true, Says: version() + ", built with " + runtime.Version()},
		examineMachine(), examineHosts(ctx), examinePip(ctx), examineCache(),
	}
	for _, s := range plugins.List() {
		findings = append(findings, examinePlugin(ctx, s))
	}
	return findings
}

func examineMachine() finding {
	f := finding{Check: "machine", Required: true, OK: runtime.GOOS == "linux" && runtime.GOARCH == "amd64"}
	f.Says = fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if v := plugins.GlibcVersion(); v != "" {
		f.Says += ", glibc " + v
	}
	if !f.OK {
		f.Mend = "plugins are pinned for linux/amd64; elsewhere name your own in TITAN_PLUGIN_CPU"
	}
	return f
}

// examineHosts says which process of a run on several hosts one here would be.
func examineHosts(ctx context.Context) finding {
	f := finding{Check: "hosts", Required: true}
	id, err := train.Identity(ctx, "tpu")
	if err != nil {
		f.Says, f.Mend = err.Error(), "correct the variable, or unset it if this host trains alone; see docs/multihost.md"
		return f
	}
	f.OK, f.Says = true, id.String()
	if id.Processes > 1 {
		host, _, err := net.SplitHostPort(id.Coordinator)
		look, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if err == nil {
			_, err = net.DefaultResolver.LookupHost(look, host)
		}
		if err != nil { // that of a pod may exist only while the job runs
			f.OK, f.Required = false, false
			f.Says += ", whose name is not known: " + err.Error()
			f.Mend = "check " + id.Source + " and " + launch.EnvCoordinator + "; on GKE the job's headless service gives hosts their names"
		}
	}
	return f
}

func examinePip(ctx context.Context) finding {
	f := finding{Check: "pip", Mend: "apt-get install python3-pip (only needed to install plugins)"}
	out, err := exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Output()
	if err != nil {
		f.Says = "python3 -m pip does not run: " + err.Error()
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			f.Says = "python3 -m pip does not run: " + lastLine(string(exit.Stderr))
		}
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
	at := dir // the nearest that exists
	st, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != "/" {
		at = filepath.Dir(at)
		st, err = os.Stat(at)
	}
	f.Mend = "mend it or point XDG_CACHE_HOME elsewhere"
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		f.Says = dir + " passes through something that is not a folder"
		return f
	case err != nil:
		f.Says = err.Error()
		return f
	case !st.IsDir():
		f.Says = at + " is not a folder"
		return f
	}
	free, err := plugins.FreeSpace(at)
	if err != nil {
		f.Says = err.Error()
		return f
	}
	f.Says = fmt.Sprintf("%s, %.1f GB free", dir, float64(free)/1e9)
	if syscall.Access(at, 2) != nil { // W_OK
		// What is installed there can be used.
		f.Says, f.Required = f.Says+", cannot be written: nothing can be installed", false
		return f
	}
	f.OK, f.Mend = true, ""
	return f
}

func examinePlugin(ctx context.Context, s plugins.Status) finding {
	f := finding{Check: s.Name + " plugin", Required: s.Name == "cpu"}
	override := os.Getenv(plugins.EnvVar(s.Name)) // what the user asked for must work
	reinstall := "titan plugin install --force " + s.Name
	rename := renameVar(s.Name)
	if s.Problem != "" {
		_, err := plugins.Find(s.Name)
		var missing *plugins.NotInstalledError
		var damaged *plugins.DamagedError
		switch {
		case errors.As(err, &missing):
			f.Says, f.Mend = "not installed ("+s.Pinned+")", missing.Command()
		case errors.As(err, &damaged):
			f.Says, f.Mend, f.Required = damaged.Path+" "+damaged.What, reinstall, true
		case override != "":
			f.Says, f.Mend, f.Required = s.Problem, rename, true
		default:
			f.Says, f.Mend = s.Problem, "see the line about the cache"
		}
		return f
	}
	if err := plugins.Verify(s.Name); err != nil {
		f.Says, f.Mend, f.Required = err.Error(), reinstall, true
		if damaged := (*plugins.DamagedError)(nil); errors.As(err, &damaged) {
			f.Says = damaged.Path + " " + damaged.What
		}
		return f
	}
	p, err := probe(ctx, s.Name, s.Path)
	if err != nil {
		f.Says, f.Mend = unusable(s, p, err)
		f.Required = f.Required || override != ""
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

// unusable says why a plugin whose file is sound does not work here, and what
// to do: installing it again would not help.
func unusable(s plugins.Status, p probed, err error) (says, mend string) {
	says = err.Error()
	if p.API != "" {
		says = "PJRT API " + p.API + ", not usable here: " + says
	}
	switch {
	case len(p.Missing) > 0:
		var names []string
		for _, n := range p.Missing {
			names = append(names, n.Library)
		}
		return says + "; it also needs " + strings.Join(names, ", "), plugins.MendMissing(p.Missing)
	case s.Source != "cache":
		return says, renameVar(s.Name)
	}
	return says, "the library is as published: mend on this machine what the message names, or name another build in " + plugins.EnvVar(s.Name)
}

func renameVar(plugin string) string {
	return "unset " + plugins.EnvVar(plugin) + " or let it name a PJRT plugin library"
}
