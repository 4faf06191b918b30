package metrics

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// scrape reads what is served as Prometheus does.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	return families
}

// gaugeIn is the value with a label's value; none if label is "".
func gaugeIn(t *testing.T, f *dto.MetricFamily, label, value string) float64 {
	require.NotNil(t, f)
	for _, m := range f.Metric {
		if label == "" && len(m.Label) == 0 {
			return m.Gauge.GetValue()
		}
		for _, l := range m.Label {
			if l.GetName() == label && l.GetValue() == value {
				return m.Gauge.GetValue()
			}
		}
	}
	require.Fail(t, "no such value", "%s{%s=%q}", f.GetName(), label, value)
	return 0
}

func TestPrometheus(t *testing.T) {
	s, err := openPrometheus("127.0.0.1:0")
	require.NoError(t, err)
	w := window()
	w.Goodput = Goodput{Wall: 100, Productive: 80, Lost: map[Kind]float64{Compile: 15, Startup: 5}}
	w.StepSeconds = []float64{2, 2.5, 40}
	w.Counts = []Counts{{"moe/expert_tokens", []float64{7, 9}}}
	require.NoError(t, s.write(w.Event()))
	w.Step, w.Loss = 11, 5
	require.NoError(t, s.write(w.Event()))
	require.NoError(t, s.write((&Validation{Step: 10, Loss: 5.5, TPS: 1}).Event()))
	require.NoError(t, s.write(Event{Kind: SummaryEvent, Step: 99}))
	got := scrape(t, s.name())
	for _, want := range []struct {
		name, label, value string
		is                 float64
	}{
		{"titan_step", "", "", 11},
		{"titan_loss", "", "", 5},
		{"titan_grad_norm", "", "", 1.23456},
		{"titan_tokens_per_second_per_device", "", "", 2059.4},
		{"titan_flops_per_second_per_device", "convention", "causal", 90.5e12},
		{"titan_mfu_ratio", "convention", "torchtitan", 0.120612},
		{"titan_memory_reserved_bytes", "", "", 40 << 30},
		{"titan_learning_rate", "group", "embed", 1e-4},
		{"titan_moe_aux_loss", "", "", 1.5},
		{"titan_moe_expert_tokens", "expert", "1", 9},
		{"titan_goodput_ratio", "", "", 0.8},
		{"titan_lost_seconds", "cause", "compile", 15},
		{"titan_validation_loss", "", "", 5.5},
		{"titan_tokens_seen", "", "", 16_777_217},
		{"titan_skipped_steps", "", "", 0},
	} {
		require.InEpsilon(t, 1+want.is, 1+gaugeIn(t, got[want.name], want.label, want.value), 1e-9, want.name)
	}
	h := got["titan_step_seconds"].Metric[0].Histogram
	require.EqualValues(t, 6, h.GetSampleCount())
	require.InDelta(t, 89, h.GetSampleSum(), 1e-9)
	require.NoError(t, s.close())
	_, err = http.Get(s.name())
	require.Error(t, err, "it is closed")
}

// An address in use is told, and costs nothing but the endpoint.
func TestPrometheusInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c := DefaultConfig()
	c.Prometheus = l.Addr().String()
	dir := t.TempDir()
	var w warnings
	r, err := Open(c, dir, Start{}, w.warn)
	require.NoError(t, err)
	r.Record(event(1, 5))
	require.Empty(t, r.Close())
	require.Len(t, w.all, 1)
	require.Contains(t, w.all[0], "nothing is served for Prometheus at "+c.Prometheus)
	require.Contains(t, w.all[0], "metrics.prometheus")
	require.Len(t, lines(t, filepath.Join(dir, "metrics.jsonl")), 2)
}

func TestPrometheusAddress(t *testing.T) {
	for a, fault := range map[string]string{
		"": "", "127.0.0.1:9464": "", ":9464": "", "[::1]:9464": "",
		"9464": "missing port in address", "localhost:": `"" is no port`, "a:0": "no port from 1", "a:65536": "no port", "a:http": "no port",
	} {
		c := DefaultConfig()
		c.Prometheus = a
		if fault == "" {
			require.NoError(t, c.Validate(), a)
		} else {
			require.ErrorContains(t, c.Validate(), fault, a)
			require.ErrorContains(t, c.Validate(), "metrics.prometheus", a)
		}
	}
}
