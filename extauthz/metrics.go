package extauthz

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what /metrics shows of an extauthz. No label holds a caller's
// value.
type metrics struct {
	decisions *prometheus.CounterVec
	duration  prometheus.Histogram
	policy    prometheus.Histogram
	replaced  prometheus.Counter
	hidden    prometheus.Counter
	cut       prometheus.Counter
	panics    prometheus.Counter
}

func newMetrics(s *Server, registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "arbiter_decisions_total", Help: "Requests decided, by outcome (allow, deny, error) and reason.",
		}, []string{"outcome", "reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "arbiter_decision_seconds", Help: "Time that Check took.",
			Buckets: []float64{.00002, .00005, .0001, .0002, .0005, .001, .002, .005, .01, .05, .25, 1},
		}),
		policy: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "arbiter_policy_seconds", Help: "Time that the policy took for one question of Check.",
			Buckets: []float64{.000005, .00001, .00002, .00005, .0001, .0002, .0005, .001, .002, .005, .01, .025, .05},
		}),
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "arbiter_answers_replaced_total", Help: "Answers of upstreams that were not passed on.",
		}),
		hidden: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "arbiter_list_items_hidden_total", Help: "Items of lists that were not shown because their caller may not use them.",
		}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "arbiter_streams_cut_total", Help: "Live streams that were ended because what opened them had ended, or the policy would not open them any more.",
		}),
	}
	m.panics = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "arbiter_panics_total", Help: "Requests that ended in a panic, as an error.",
	})
	gauges := []prometheus.Collector{
		gauge("arbiter_streams_live", "Live streams.", func() float64 { return float64(s.streams.total()) }),
		gauge("arbiter_limit_buckets", "Token buckets of the policy's limits that are not full.", func() float64 { return float64(s.limits.count.Load()) }),
		gauge("arbiter_revoked_entries", "Entries of the revoked set.", func() float64 { return float64(s.revoked.Known().Len()) }),
		gauge("arbiter_revocation_seq", "Newest revocation applied.", func() float64 { return float64(s.revoked.Known().At.Seq) }),
		gauge("arbiter_lease_held", "1 while control is heard.", func() float64 { return oneIf(s.revoked.Alive()) }),
		gauge("arbiter_revision", "Revision of the settings in use.", func() float64 {
			if snap := s.snapshot.Load(); snap != nil {
				return float64(snap.Revision)
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "arbiter_records_dropped_total", Help: "Decision records that were not kept somewhere.",
		}, func() float64 { return float64(s.records.dropped.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "arbiter_records_unsent_total", Help: "Decision records that are in the local log only: more than control is sent.",
		}, func() float64 { return float64(s.records.unsent.Load()) }),
	}
	for _, c := range append(gauges, m.decisions, m.duration, m.policy, m.replaced, m.hidden, m.cut, m.panics) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (m *metrics) decided(outcome string, reason Reason, took time.Duration) {
	m.decisions.WithLabelValues(outcome, string(reason)).Inc()
	m.duration.Observe(took.Seconds())
}
