package main

import (
	"context"
	"fmt"
	"time"

	"github.com/arbiter-gateway/arbiter/bench/report"
)

// ending is what deletes took with a number of pairs.
type ending struct {
	pairs   int
	streams int       // live ones of each token
	answers durations // of the API
	told    durations // control's own figure, whole milliseconds
	last    durations // until the client saw the last stream end, from the request on
}

const (
	fewStreams  = 4
	manyStreams = 256
	manyDeletes = 10

	deleteGoalPairs = 16
)

// revocation measures deletes with each number of pairs.
func (p *program) revocation(ctx context.Context) (string, error) {
	rows := [][]string{{
		"extauthz", "live streams of the token", "deletes", "answered: p50 ms", "p99 ms", "most ms",
		"last stream ended at the client: p50 ms", "p99 ms",
	}}
	var wanted []goal
	for _, n := range p.pairs {
		few, many, err := p.revokeWith(ctx, n)
		if err != nil {
			return "", fmt.Errorf("%d extauthz: %w", n, err)
		}
		if n == deleteGoalPairs {
			wanted = append(wanted, goal{"delete a token, 16 extauthz all well: p99 of the answer", ms(few.answers.at(0.99)), "%.1f ms", 0, 50})
		}
		for _, e := range []ending{few, many} {
			rows = append(rows, []string{
				fmt.Sprint(e.pairs), fmt.Sprint(e.streams), fmt.Sprint(len(e.answers)),
				e.answers.text(0.5), e.answers.text(0.99), e.answers.most(), e.last.text(0.5), e.last.text(0.99),
			})
		}
	}
	return goals(wanted) + "\n" + report.Table(rows) + "\n" + revocationNotes, nil
}

const revocationNotes = `Times count from the request. Every one of these deletes was answered with all replicas confirmed and all streams counted as ended, and a call after the answer was refused by another pair.
Nothing else was asked of the gateway meanwhile; that nothing slips through under load is shown by the end-to-end tests.
`

func (p *program) revokeWith(ctx context.Context, n int) (few, many ending, err error) {
	g, err := p.start(ctx, fmt.Sprintf("pairs-%d", n), n)
	if err != nil {
		return few, many, err
	}
	defer g.stop()
	p.say("%d extauthz, each with an Envoy", n)
	made, err := g.api.addServer(ctx, "revoked", g.url("revoked"))
	if err != nil {
		return few, many, err
	}
	for range 5 { // connections, and the code
		if err := g.end(ctx, made.ID, new(ending), 1, 0); err != nil {
			return few, many, err
		}
	}
	few, many = ending{pairs: n, streams: fewStreams}, ending{pairs: n, streams: manyStreams}
	for i := range p.deletes {
		if err := g.end(ctx, made.ID, &few, fewStreams, i); err != nil {
			return few, many, err
		}
	}
	p.say("few streams: answered p50 %s ms, p99 %s ms", few.answers.text(0.5), few.answers.text(0.99))
	for i := range manyDeletes {
		if err := g.end(ctx, made.ID, &many, manyStreams, i); err != nil {
			return few, many, err
		}
	}
	p.say("%d streams: answered p50 %s ms, most %s ms", manyStreams, many.answers.text(0.5), many.answers.most())
	return few, many, nil
}

// end makes a token, opens streams of it through the Envoys in turn, deletes it
// and waits until every stream has ended.
func (g *gateway) end(ctx context.Context, server string, e *ending, streams, turn int) error {
	token, err := g.api.addToken(ctx, server)
	if err != nil {
		return err
	}
	session, err := g.pairs[turn%len(g.pairs)].client.session(ctx, token)
	if err != nil {
		return err
	}
	open := make([]<-chan time.Time, streams)
	for i := range open {
		if open[i], err = g.pairs[(turn+i)%len(g.pairs)].client.stream(ctx, token, session); err != nil {
			return err
		}
	}
	began := time.Now()
	out, err := g.api.deleteToken(ctx, token)
	if err != nil {
		return err
	}
	answered := time.Now()
	if err := g.pairs[(turn+1)%len(g.pairs)].client.refused(ctx, token); err != nil {
		return err
	}
	if out.Revocation.StreamsEnded != streams || out.Revocation.Replicas != len(g.pairs) {
		return fmt.Errorf("a delete ended %d of %d streams, confirmed by %d replicas of %d",
			out.Revocation.StreamsEnded, streams, out.Revocation.Replicas, len(g.pairs))
	}
	last, err := lastOf(open)
	if err != nil {
		return err
	}
	e.answers = append(e.answers, answered.Sub(began))
	e.told = append(e.told, time.Duration(out.Revocation.Milliseconds)*time.Millisecond)
	e.last = append(e.last, last.Sub(began))
	return nil
}

// lastOf waits for the end of every stream.
func lastOf(open []<-chan time.Time) (last time.Time, err error) {
	deadline := time.After(10 * time.Second)
	for _, ended := range open {
		select {
		case at := <-ended:
			if at.After(last) {
				last = at
			}
		case <-deadline:
			return last, fmt.Errorf("a stream of a deleted token was still open after 10 s")
		}
	}
	return last, nil
}
