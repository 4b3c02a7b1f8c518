package upstream_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers on one loopback port over UDP and TCP.
type dnsServer struct {
	address string
	work    sync.WaitGroup

	mu        sync.Mutex // guards all below: a test changes what is answered
	records   map[string][]dnsmessage.Resource
	code      dnsmessage.RCode // when not success, of every answer
	failing   dnsmessage.Type  // questions of this type fail
	truncate  bool             // over UDP
	silent    bool
	udp, tcp  int // questions
	open      map[net.Conn]bool
	listeners []io.Closer
}

func newDNSServer(t *testing.T) *dnsServer {
	t.Helper()
	s := &dnsServer{records: map[string][]dnsmessage.Resource{}, open: map[net.Conn]bool{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	packets, err := net.ListenPacket("udp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.listeners = []io.Closer{listener, packets}
	s.work.Go(func() { s.serveUDP(packets) })
	s.work.Go(func() { s.serveTCP(listener) })
	t.Cleanup(s.close)
	return s
}

func (s *dnsServer) close() {
	for _, l := range s.listeners {
		l.Close()
	}
	s.mu.Lock()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// dial takes the place of a connection to the machine's name servers.
func (s *dnsServer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, s.address)
}

func (s *dnsServer) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// set replaces the records of a name.
func (s *dnsServer) set(name string, ttl uint32, addrs ...string) {
	var records []dnsmessage.Resource
	for _, text := range addrs {
		records = append(records, address(name, ttl, netip.MustParseAddr(text)))
	}
	s.do(func() { s.records[name+"."] = records })
}

func address(name string, ttl uint32, a netip.Addr) dnsmessage.Resource {
	header := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name + "."), Class: dnsmessage.ClassINET, TTL: ttl}
	if a.Is4() {
		header.Type = dnsmessage.TypeA
		return dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}}
	}
	header.Type = dnsmessage.TypeAAAA
	return dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}
}

// alias adds a CNAME with the addresses of its target behind it.
func (s *dnsServer) alias(name, target string, ttl, targetTTL uint32, addr string) {
	s.do(func() {
		s.records[name+"."] = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{
				Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeCNAME, Class: dnsmessage.ClassINET, TTL: ttl,
			},
			Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(target + ".")},
		}, address(target, targetTTL, netip.MustParseAddr(addr))}
	})
}

func (s *dnsServer) serveUDP(conn net.PacketConn) {
	packet := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		if answer := s.answer(packet[:n], false); answer != nil {
			_, _ = conn.WriteTo(answer, from) // an asker that is gone
		}
	}
}

func (s *dnsServer) serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.do(func() { s.open[conn] = true })
		s.work.Go(func() {
			defer s.do(func() { delete(s.open, conn) })
			defer conn.Close()
			s.serveStream(conn)
		})
	}
}

func (s *dnsServer) serveStream(conn net.Conn) {
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, packet); err != nil {
			return
		}
		answer := s.answer(packet, true)
		if answer == nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(answer)))
		for _, b := range append(framed, answer...) { // in the smallest pieces
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
		}
	}
}

func (s *dnsServer) answer(packet []byte, stream bool) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var query dnsmessage.Message
	if err := query.Unpack(packet); err != nil || len(query.Questions) != 1 || s.silent {
		return nil
	}
	if stream {
		s.tcp++
	} else {
		s.udp++
	}
	question := query.Questions[0]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, RecursionAvailable: true, RCode: s.code},
		Questions: query.Questions,
	}
	records, known := s.records[question.Name.String()]
	switch {
	case s.code != dnsmessage.RCodeSuccess:
	case question.Type == s.failing:
		answer.RCode = dnsmessage.RCodeServerFailure
	case !known:
		answer.RCode = dnsmessage.RCodeNameError
	case s.truncate && !stream:
		answer.Truncated = true
	default:
		for _, r := range records {
			if r.Header.Type == question.Type || r.Header.Type == dnsmessage.TypeCNAME {
				answer.Answers = append(answer.Answers, r)
			}
		}
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil
	}
	return packed
}
