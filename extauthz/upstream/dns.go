package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Dial connects to a name server; the parameters are those of net.Dialer.DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// DNS returns a Lookup that asks as this machine is configured to: /etc/hosts,
// then the servers and search domains of /etc/resolv.conf. The TTL is the
// smallest in any answer that was seen on the way, 0 when there was none. A name
// is gone only when that was said of both families. Dial nil means net.Dialer.
//
// Addresses of a family for which this machine has no route are left out while
// others remain: Envoy is given one address and cannot try the next.
func DNS(dial Dial) Lookup {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, host string) (Answer, error) {
		// net.Resolver leaves goroutines behind that wait for an answer when ctx
		// ends first: closing their connections ends them.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var seen watch
		resolver := net.Resolver{
			PreferGo: true,
			Dial: func(dialCtx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(dialCtx, network, address)
				if err != nil {
					return nil, err
				}
				context.AfterFunc(ctx, func() { conn.Close() })
				return seen.over(conn), nil
			},
		}
		addrs, err := resolver.LookupNetIP(ctx, "ip", host)
		dnsErr, _ := errors.AsType[*net.DNSError](err)
		switch {
		case err == nil:
			return Answer{Addrs: reachable(addrs), TTL: seen.ttl()}, nil
		case dnsErr != nil && dnsErr.IsNotFound && seen.whole():
			return Answer{}, ErrNoSuchHost
		}
		return Answer{}, err
	}
}

// reachable leaves out what has no route, unless nothing has one.
func reachable(addrs []netip.Addr) []netip.Addr {
	routed := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !hasRoute(a) })
	if len(routed) == 0 {
		return addrs
	}
	return routed
}

// hasRoute asks the kernel for a source address. Nothing is sent: connecting a
// UDP socket only chooses the route (as RFC 6724, section 2, needs it, too).
func hasRoute(a netip.Addr) bool {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// watch sees the messages of one lookup, for what net.Resolver does not tell: how
// long the answers live, and whether both families were answered. (It says "no
// such host" also when A failed and AAAA has no records.) Messages are not matched
// with their questions: net.Resolver does that before it believes them.
type watch struct {
	mu       sync.Mutex // A and AAAA are asked for at the same time
	known    bool       // seconds is set
	seconds  uint32     // the smallest TTL
	answered map[string]families
}

// families says for which kinds of addresses a name was answered.
type families struct{ v4, v6 bool }

// whole reports whether each name that was answered at all was answered for both
// families, by records or by their absence.
func (w *watch) whole() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.answered {
		if !f.v4 || !f.v6 {
			return false
		}
	}
	return true
}

func (w *watch) answers(q dnsmessage.Question, header dnsmessage.Header) {
	good := (header.RCode == dnsmessage.RCodeSuccess || header.RCode == dnsmessage.RCodeNameError) && !header.Truncated
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answered == nil {
		w.answered = make(map[string]families)
	}
	f := w.answered[q.Name.String()]
	f.v4 = f.v4 || good && q.Type == dnsmessage.TypeA
	f.v6 = f.v6 || good && q.Type == dnsmessage.TypeAAAA
	w.answered[q.Name.String()] = f
}

func (w *watch) ttl() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known && w.seconds == 0 {
		return time.Nanosecond // known, and shorter than any bound
	}
	return time.Duration(w.seconds) * time.Second
}

func (w *watch) lives(seconds uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known || seconds < w.seconds {
		w.known, w.seconds = true, seconds
	}
}

// message takes one DNS message (RFC 1035, section 4.1) with its one question.
func (w *watch) message(packet []byte) {
	var parser dnsmessage.Parser
	header, err := parser.Start(packet)
	if err != nil || !header.Response {
		return
	}
	question, err := parser.Question()
	if err != nil || parser.SkipAllQuestions() != nil {
		return
	}
	w.answers(question, header)
	for {
		answer, err := parser.AnswerHeader()
		if err != nil || parser.SkipAnswer() != nil {
			return
		}
		switch answer.Type {
		case dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeCNAME:
			w.lives(answer.TTL)
		}
	}
}

// over returns conn, with a look at all that is read from it. Whether it is a
// net.PacketConn tells net.Resolver how messages are framed, so that stays.
func (w *watch) over(conn net.Conn) net.Conn {
	if packets, ok := conn.(packetConn); ok {
		return &datagrams{packetConn: packets, seen: w}
	}
	return &stream{Conn: conn, seen: w}
}

type packetConn interface {
	net.Conn
	net.PacketConn
}

// datagrams reads a message at a time.
type datagrams struct {
	packetConn
	seen *watch
}

func (d *datagrams) Read(b []byte) (int, error) {
	n, err := d.packetConn.Read(b)
	if err == nil {
		d.seen.message(b[:n])
	}
	return n, err
}

// stream reads messages with two bytes of length before each (RFC 1035, section
// 4.2.2), in any pieces; at most one, 64 KiB, is kept.
type stream struct {
	net.Conn
	seen    *watch
	pending []byte
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.pending = append(s.pending, b[:n]...)
	for len(s.pending) >= 2 {
		end := 2 + int(binary.BigEndian.Uint16(s.pending))
		if len(s.pending) < end {
			break
		}
		s.seen.message(s.pending[2:end])
		s.pending = s.pending[end:]
	}
	return n, err
}
