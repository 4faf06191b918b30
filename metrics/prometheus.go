package metrics

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// validAddress checks an address to listen at; empty is none.
func validAddress(a string) error {
	if a == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(a)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "address "+a+": "))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is no port from 1 to 65535", port)
	}
	return nil
}

// gauge says how a scalar of an event is called for Prometheus: with its unit in
// the name, and in base units.
type gauge struct {
	name, help string
	scale      float64 // of the scalar; 0: 1
	labels     prometheus.Labels
}

const promPrefix = "titan_"

// gauges are the scalars of train events by name. Those of validations, which begin
// with the name of their kind, and families of names follow below.
var gauges = map[string]gauge{
	"loss_metrics/global_avg_loss": {name: "loss", help: "Loss of the last step, by valid token."},
	"loss_metrics/global_max_loss": {name: "loss_max", help: "Largest loss of a part of the last step."},
	"grad_norm":                    {name: "grad_norm", help: "Global norm of the gradient before clipping."},
	"throughput(tps)":              {name: "tokens_per_second_per_device", help: "Tokens without padding."},
	"tflops":                       {name: "flops_per_second_per_device", help: "Model FLOPs by convention.", scale: 1e12, labels: prometheus.Labels{"convention": TorchTitan.String()}},
	"tflops_causal":                {name: "flops_per_second_per_device", help: "Model FLOPs by convention.", scale: 1e12, labels: prometheus.Labels{"convention": Causal.String()}},
	"mfu(%)":                       {name: "mfu_ratio", help: "Model FLOPs utilisation by convention.", scale: 0.01, labels: prometheus.Labels{"convention": TorchTitan.String()}},
	"mfu_causal(%)":                {name: "mfu_ratio", help: "Model FLOPs utilisation by convention.", scale: 0.01, labels: prometheus.Labels{"convention": Causal.String()}},
	"time_metrics/data_loading(s)": {name: "data_wait_seconds", help: "Time that a step waited for its batch."},
	"memory/max_active(GiB)":       {name: "memory_active_bytes", help: "Most memory in buffers of one device.", scale: gib},
	"memory/max_reserved(GiB)":     {name: "memory_reserved_bytes", help: "Most memory that the allocator of one device had.", scale: gib},
	"n_tokens_seen":                {name: "tokens_seen", help: "Tokens since the first step of training."},
	"skipped_steps":                {name: "skipped_steps", help: "Steps of this process that changed nothing, as something was not finite."},
	"goodput(%)":                   {name: "goodput_ratio", help: "Productive share of the process's time.", scale: 0.01},
	"moe/aux_loss":                 {name: "moe_aux_loss", help: "Load balancing loss."},
	"moe/z_loss":                   {name: "moe_z_loss", help: "Router z-loss."},
	"moe/imbalance":                {name: "moe_imbalance_ratio", help: "Tokens of the busiest expert over the mean, in the worst layer."},
	"moe/dropped_tokens":           {name: "moe_dropped_ratio", help: "Share of choices that found no room."},
	"validation_metrics/loss":      {name: "validation_loss", help: "Loss on held-out data."},
}

// gaugeOf returns how a scalar is called; false: it is not served.
func gaugeOf(scalar string) (gauge, bool) {
	if g, ok := gauges[scalar]; ok {
		return g, true
	}
	if group, ok := strings.CutPrefix(scalar, "lr/"); ok {
		return gauge{name: "learning_rate", help: "Of a parameter group.", labels: prometheus.Labels{"group": group}}, true
	}
	if cause, ok := strings.CutPrefix(strings.TrimSuffix(scalar, "(s)"), lostPrefix); ok {
		return gauge{name: "lost_seconds", help: "Time of the process that was not productive, by cause.", labels: prometheus.Labels{"cause": cause}}, true
	}
	return gauge{}, false
}

// prometheusSink serves the last event's figures over HTTP.
type prometheusSink struct {
	registry *prometheus.Registry
	vecs     map[string]*prometheus.GaugeVec
	steps    prometheus.Histogram
	experts  *prometheus.GaugeVec
	server   *http.Server
	address  string
}

// openPrometheus listens at an address. Figures are those of this process.
func openPrometheus(address string) (*prometheusSink, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := newPrometheusSink()
	s.address = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(l) }() // ends with close
	return s, nil
}

func newPrometheusSink() *prometheusSink {
	s := &prometheusSink{registry: prometheus.NewRegistry(), vecs: map[string]*prometheus.GaugeVec{}}
	// A step takes from milliseconds to minutes.
	s.steps = prometheus.NewHistogram(prometheus.HistogramOpts{Name: promPrefix + "step_seconds", Help: "Time of steps, without pauses.", Buckets: prometheus.ExponentialBuckets(1e-3, 2, 18)})
	s.experts = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: promPrefix + "moe_expert_tokens", Help: "Tokens that chose an expert in the last step, over all layers."}, []string{"expert"})
	s.registry.MustRegister(s.steps, s.experts)
	return s
}

func (s *prometheusSink) name() string { return "http://" + s.address + "/metrics" }

func (s *prometheusSink) close() error { return s.server.Close() }

func (s *prometheusSink) write(e Event) error {
	if e.Kind != TrainEvent && e.Kind != ValidationEvent {
		return nil
	}
	if e.Kind == TrainEvent {
		s.set(gauge{name: "step", help: "Last step of training."}, float64(e.Step))
	}
	for _, x := range e.Scalars {
		if g, ok := gaugeOf(x.Name); ok {
			s.set(g, x.Value)
		}
	}
	for _, c := range e.Counts {
		for i, n := range c.N {
			s.experts.WithLabelValues(strconv.Itoa(i)).Set(n)
		}
	}
	for _, l := range e.Lists {
		for _, seconds := range l.Values {
			s.steps.Observe(seconds)
		}
	}
	return nil
}

func (s *prometheusSink) set(g gauge, value float64) {
	vec := s.vecs[g.name]
	if vec == nil {
		var labels []string
		for name := range g.labels {
			labels = append(labels, name)
		}
		vec = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: promPrefix + g.name, Help: g.help}, labels)
		s.registry.MustRegister(vec)
		s.vecs[g.name] = vec
	}
	if g.scale != 0 {
		value *= g.scale
	}
	vec.With(g.labels).Set(value)
}
