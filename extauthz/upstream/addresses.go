package upstream

import "net/netip"

// class is a range that is refused: always, or unless the list names it.
type class struct {
	prefix netip.Prefix
	always bool
	why    string
}

const (
	unspecified = "an unspecified address"
	linkLocal   = "link-local"
	multicast   = "multicast"
	metadata    = "a cloud's metadata service"
)

// classes is the whole table. Metadata services that have link-local addresses
// (169.254.169.254 of most clouds, 169.254.170.2 of ECS, fe80::a9fe:a9fe of
// OpenStack) have rows of their own only where naming the link-local range must
// not open them.
var classes = []class{
	{netip.MustParsePrefix("0.0.0.0/8"), true, unspecified}, // RFC 1122, section 3.2.1.3
	{netip.MustParsePrefix("::/128"), true, unspecified},
	{netip.MustParsePrefix("224.0.0.0/4"), true, multicast},
	{netip.MustParsePrefix("ff00::/8"), true, multicast},
	{netip.MustParsePrefix("255.255.255.255/32"), true, "broadcast"},
	{netip.MustParsePrefix("169.254.0.0/16"), false, linkLocal}, // RFC 3927
	{netip.MustParsePrefix("fe80::/10"), false, linkLocal},      // RFC 4291, section 2.5.6

	{netip.MustParsePrefix("169.254.169.254/32"), false, metadata},     // AWS, Azure, Google, OpenStack and others
	{netip.MustParsePrefix("169.254.170.2/32"), false, metadata},       // AWS ECS, task credentials
	{netip.MustParsePrefix("169.254.170.23/32"), false, metadata},      // AWS EKS, pod identity
	{netip.MustParsePrefix("fe80::a9fe:a9fe/128"), false, metadata},    // OpenStack
	{netip.MustParsePrefix("fd00:ec2::254/128"), false, metadata},      // AWS
	{netip.MustParsePrefix("fd00:ec2::23/128"), false, metadata},       // AWS EKS, pod identity
	{netip.MustParsePrefix("fd20:ce::254/128"), false, metadata},       // Google
	{netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), false, metadata}, // Oracle
	{netip.MustParsePrefix("fd00:42::42/128"), false, metadata},        // Scaleway
	{netip.MustParsePrefix("100.100.100.200/32"), false, metadata},     // Alibaba
	{netip.MustParsePrefix("168.63.129.16/32"), false, metadata},       // Azure, WireServer
	{netip.MustParsePrefix("192.0.0.192/32"), false, metadata},         // Oracle, older
}

// embedding is a range of IPv6 addresses that carry an IPv4 address: at is where
// its four bytes lie.
type embedding struct {
	prefix netip.Prefix
	at     [4]int
	how    reading
}

type reading int

const (
	plainly  reading = iota
	inverted         // each bit is flipped
	perhaps          // one of several layouts; 0.0.0.0/8 shows that it is not this one
)

// embeddings is the whole table. Who uses 64:ff9b:1::/48 chooses the length of
// the prefix within it, so all layouts of RFC 6052, section 2.2, are read.
var embeddings = []embedding{
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}, plainly},           // RFC 4291, section 2.5.5.1
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}, plainly}, // RFC 2765, section 2.1
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}, plainly},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}, perhaps},     // NAT64, RFC 8215
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}, perhaps},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}, perhaps},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}, perhaps},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}, plainly},      // 6to4, RFC 3056
	{netip.MustParsePrefix("2001::/32"), [4]int{4, 5, 6, 7}, plainly},      // Teredo server, RFC 4380
	{netip.MustParsePrefix("2001::/32"), [4]int{12, 13, 14, 15}, inverted}, // Teredo client
}

// forms appends addr, unmapped, and every IPv4 address that it carries.
func forms(to []netip.Addr, addr netip.Addr) []netip.Addr {
	addr = addr.Unmap() // ::ffff:0:0/96, RFC 4291, section 2.5.5.2: the same address
	to = append(to, addr)
	if addr.Is4() || addr.IsLoopback() || addr.IsUnspecified() {
		return to
	}
	b := addr.As16()
	for _, e := range embeddings {
		if e.prefix.Contains(addr) {
			to = e.appendTo(to, b)
		}
	}
	// ISATAP (RFC 5214, section 6.1) stands in the interface id, under any prefix.
	if b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		to = append(to, netip.AddrFrom4([4]byte(b[12:])))
	}
	return to
}

func (e embedding) appendTo(to []netip.Addr, b [16]byte) []netip.Addr {
	var v4 [4]byte
	for i, at := range e.at {
		v4[i] = b[at]
		if e.how == inverted {
			v4[i] = ^v4[i]
		}
	}
	if e.how == perhaps && v4[0] == 0 {
		return to
	}
	return append(to, netip.AddrFrom4(v4))
}
