package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// ErrRefused says that an address must not be reached.
var ErrRefused = errors.New("address is refused by upstream_networks")

// Networks says which addresses may be upstreams. It is safe for concurrent use.
//
// Never: unspecified, multicast and broadcast addresses, and what the gateway
// itself listens on. With an empty list: everything else but link-local
// addresses and those where a cloud serves its metadata and credentials. With a
// list: only what it has; a link-local or metadata address only through an entry
// that lies wholly within the refused range (0.0.0.0/0 does not name
// 169.254.169.254, 169.254.169.254/32 does).
//
// An IPv6 address that carries an IPv4 address (see forms) passes only when both
// do. An address that some other machine translates into one of ours is not
// recognised: name it as one of our own.
type Networks struct {
	allow []netip.Prefix
	own   map[netip.AddrPort]bool
	// anywhere has the ports of listeners on an unspecified address.
	anywhere map[uint16]bool
	local    atomic.Pointer[localAddrs]
}

// localAddrs are the addresses of this machine's interfaces, read at a time.
type localAddrs struct {
	at    time.Time
	addrs map[netip.Addr]bool
}

const localAddrsFor = 5 * time.Second

// NewNetworks returns the rules. Allow may be empty. Own has every address on
// which Envoy or a role listens; 0.0.0.0 and [::] stand for all addresses of this
// machine, of both families. A prefix that is not valid allows nothing.
func NewNetworks(allow []netip.Prefix, own []netip.AddrPort) *Networks {
	n := &Networks{own: make(map[netip.AddrPort]bool, len(own)), anywhere: make(map[uint16]bool)}
	for _, p := range allow {
		if addr := p.Addr(); addr.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(addr.Unmap(), p.Bits()-96)
		}
		n.allow = append(n.allow, p)
	}
	for _, listener := range own {
		addr := listener.Addr().Unmap().WithZone("")
		if !addr.IsValid() || addr.IsUnspecified() {
			n.anywhere[listener.Port()] = true
			continue
		}
		n.own[netip.AddrPortFrom(addr, listener.Port())] = true
	}
	return n
}

// Check returns nil when target may be reached, else an error that is
// ErrRefused and says why. Nil Networks refuse everything.
func (n *Networks) Check(target netip.AddrPort) error {
	if n == nil {
		return fmt.Errorf("%w: no rules yet", ErrRefused)
	}
	if !target.IsValid() || target.Port() == 0 || target.Addr().Zone() != "" {
		return fmt.Errorf("%w: %s: not an address and a port", ErrRefused, target)
	}
	var space [8]netip.Addr
	for _, form := range forms(space[:0], target.Addr()) {
		if why := n.refuses(form, target.Port()); why != "" {
			return fmt.Errorf("%w: %s: %s", ErrRefused, target, why)
		}
	}
	return nil
}

// refuses says why one form of an address is refused, or "".
func (n *Networks) refuses(addr netip.Addr, port uint16) string {
	for _, c := range classes {
		if c.prefix.Contains(addr) && (c.always || !n.names(c.prefix, addr)) {
			return c.why
		}
	}
	if len(n.allow) > 0 && !slices.ContainsFunc(n.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return "in none of the allowed networks"
	}
	if n.own[netip.AddrPortFrom(addr, port)] || n.anywhere[port] && n.isLocal(addr) {
		return "the gateway itself listens there"
	}
	return ""
}

// names reports whether an entry of the list has addr and lies within class.
func (n *Networks) names(class netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(n.allow, func(p netip.Prefix) bool {
		return p.Contains(addr) && p.Bits() >= class.Bits()
	})
}

// isLocal reports whether addr is this machine. When the interfaces cannot be
// read every address might be.
func (n *Networks) isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	known := n.local.Load()
	if known == nil || time.Since(known.at) > localAddrsFor {
		read, err := readLocalAddrs()
		if err != nil {
			return true
		}
		known = read
		n.local.Store(known)
	}
	return known.addrs[addr]
}

func readLocalAddrs() (*localAddrs, error) {
	read := &localAddrs{at: time.Now(), addrs: make(map[netip.Addr]bool)}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range found {
		if ipNet, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(ipNet.IP); ok {
				read.addrs[addr.Unmap()] = true
			}
		}
	}
	return read, nil
}
