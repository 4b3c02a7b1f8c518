package policy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/arbiter-gateway/arbiter/internal/store"
)

type metrics struct {
	refused  prometheus.Counter
	deciding *prometheus.GaugeVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "arbiter_policy_refused_total", Help: "Policies that were not accepted, and readings of their source that failed.",
		}),
		deciding: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "arbiter_policy_accepted_timestamp_seconds", Help: "When the policy that decides was accepted, by its revision.",
		}, []string{"policy"}),
	}
	registry.MustRegister(m.refused, m.deciding)
	return m
}

// accepted leaves one series: that of the policy that decides.
func (m *metrics) accepted(p store.Policy) {
	m.deciding.Reset()
	m.deciding.WithLabelValues(p.Revision).Set(float64(p.AcceptedAt.UnixMicro()) / 1e6)
}
