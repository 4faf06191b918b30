package pjrt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
	"titan/pjrt"
	"titan/pjrt/xspace"
)

// The CPU plugin has no profiler, and says so. libtpu has one, which records even
// where there is no TPU: what the host's threads do.
func TestProfiler(t *testing.T) {
	_, err := xlatest.CPU(t).Plugin().NewProfiler()
	require.True(t, pjrt.IsUnimplemented(err), "%v", err)
	require.ErrorContains(t, err, "has no profiler")

	for range 2 {
		p, err := xlatest.TPU(t).NewProfiler()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		raw, err := p.Stop()
		require.NoError(t, err)
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		require.ErrorContains(t, p.Start(), "closed")
		planes, err := xspace.Parse(raw)
		require.NoError(t, err)
		took := 0
		for _, p := range planes {
			for _, l := range p.Lines {
				for _, e := range l.Events {
					if p.Name == "/host:CPU" && e.Name != "" && e.Length > 0 {
						took++
					}
				}
			}
		}
		require.Positive(t, took, "of %d planes, %d bytes", len(planes), len(raw))
	}
}
