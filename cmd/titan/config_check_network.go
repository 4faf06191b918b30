package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"titan/configs"
	"titan/mesh"
)

// networks describes the axes of a recipe's mesh that have more than one device,
// one a line: which network they cross, how far neighbours are apart, and what goes
// over it.
func networks(r *configs.Recipe, m *mesh.Mesh) ([]string, error) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, placed := m.Device(0)
	for _, a := range m.Axes() {
		if a.Size == 1 {
			continue
		}
		between := "network: known on the machine"
		switch {
		case r.Mesh.Platform == "cpu":
			between = "virtual devices of this process"
		case placed:
			route, err := m.Route(a.Name)
			if err != nil {
				return nil, err
			}
			between = route.String()
			if apart := route.Apart(); apart != "" && apart != "same chip" {
				between += ", " + apart + " apart"
			}
		}
		fmt.Fprintf(w, "%v\t%s\t%s\n", a, between, r.Parallelism.Carries(a.Name))
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if text == "" {
		return nil, nil
	}
	return strings.Split(text, "\n"), nil
}
