package upstream_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/arbiter-gateway/arbiter/extauthz/upstream"
)

func networks(allow ...string) *upstream.Networks { return listening(nil, allow...) }

func listening(own []string, allow ...string) *upstream.Networks {
	var prefixes []netip.Prefix
	for _, text := range allow {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	var listeners []netip.AddrPort
	for _, text := range own {
		listeners = append(listeners, netip.MustParseAddrPort(text))
	}
	return upstream.NewNetworks(prefixes, listeners)
}

// check compares both ways: want says whether target is allowed.
func check(t *testing.T, n *upstream.Networks, target string, want bool) {
	t.Helper()
	err := n.Check(netip.MustParseAddrPort(target))
	if (err == nil) != want || err != nil && !errors.Is(err, upstream.ErrRefused) {
		t.Errorf("Check(%s) = %v, want allowed %v", target, err, want)
	}
}

func TestDefaultNetworks(t *testing.T) {
	tests := []struct {
		name   string
		target string
		want   bool
	}{
		{"a public address", "93.184.215.14:443", true},
		{"a public IPv6 address", "[2606:4700::1]:443", true},
		{"private 10", "10.1.2.3:80", true},
		{"private 172.16", "172.16.0.1:80", true},
		{"private 192.168", "192.168.1.1:80", true},
		{"shared 100.64", "100.64.0.1:80", true},
		{"unique local", "[fd00::1]:80", true},
		{"loopback", "127.0.0.1:3001", true},
		{"IPv6 loopback", "[::1]:3001", true},
		{"mapped private", "[::ffff:10.0.0.1]:80", true},
		{"NAT64 of a public address", "[64:ff9b::5db8:d70e]:443", true},
		{"local NAT64 of a public address", "[64:ff9b:1::5db8:d70e]:443", true},
		{"6to4 of a public address", "[2002:5db8:d70e::1]:443", true},
		{"beside link-local", "169.253.255.255:80", true},
		{"beside multicast", "223.255.255.255:80", true},

		{"link-local", "169.254.1.1:80", false},
		{"IPv6 link-local", "[fe80::1]:80", false},
		{"the end of IPv6 link-local", "[febf::1]:80", false},
		{"unspecified", "0.0.0.0:80", false},
		{"this network", "0.1.2.3:80", false},
		{"IPv6 unspecified", "[::]:80", false},
		{"multicast", "224.0.0.1:80", false},
		{"the end of multicast", "239.255.255.255:80", false},
		{"IPv6 multicast", "[ff02::1]:80", false},
		{"broadcast", "255.255.255.255:80", false},
		{"port 0", "10.0.0.1:0", false},
		{"a zone", "[2001:db8::1%eth0]:80", false},

		{"metadata", "169.254.169.254:80", false},
		{"metadata of a container", "169.254.170.2:80", false},
		{"AWS metadata over IPv6", "[fd00:ec2::254]:80", false},
		{"AWS pod identity over IPv6", "[fd00:ec2::23]:80", false},
		{"Google metadata over IPv6", "[fd20:ce::254]:80", false},
		{"Oracle metadata over IPv6", "[fd00:c1::a9fe:a9fe]:80", false},
		{"Scaleway metadata over IPv6", "[fd00:42::42]:80", false},
		{"OpenStack metadata over IPv6", "[fe80::a9fe:a9fe]:80", false},
		{"Alibaba metadata", "100.100.100.200:80", false},
		{"Azure WireServer", "168.63.129.16:80", false},
		{"Oracle metadata, older", "192.0.0.192:80", false},
		{"Alibaba metadata, mapped", "[::ffff:100.100.100.200]:80", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { check(t, networks(), tt.target, tt.want) })
	}
}

// spellings are 169.254.169.254 (a9fe:a9fe) in every form that carries IPv4.
var spellings = map[string]string{
	"itself":                   "169.254.169.254",
	"mapped":                   "::ffff:169.254.169.254",
	"mapped, in hexadecimal":   "::ffff:a9fe:a9fe",
	"compatible":               "::169.254.169.254",
	"translated":               "::ffff:0:a9fe:a9fe",
	"NAT64":                    "64:ff9b::a9fe:a9fe",
	"local NAT64, /96":         "64:ff9b:1::a9fe:a9fe",
	"local NAT64, /96 further": "64:ff9b:1:7:8:9:a9fe:a9fe",
	"local NAT64, /48":         "64:ff9b:1:a9fe:a9:fe00::",
	"local NAT64, /56":         "64:ff9b:1:a9:fe:a9fe::",
	"local NAT64, /64":         "64:ff9b:1:0:a9:fea9:fe00:0",
	"6to4":                     "2002:a9fe:a9fe::1",
	"Teredo server":            "2001:0:a9fe:a9fe::",
	"Teredo client":            "2001:0:4136:e378:8000:63bf:5601:5601",
	"ISATAP":                   "2001:db8::5efe:a9fe:a9fe",
	"ISATAP, universal bit":    "2001:db8::200:5efe:a9fe:a9fe",
	"ISATAP, unique local":     "fd12::5efe:a9fe:a9fe",
}

func TestMetadataIsRefusedInEverySpelling(t *testing.T) {
	for name, text := range spellings {
		t.Run(name, func(t *testing.T) {
			target := netip.AddrPortFrom(netip.MustParseAddr(text), 80).String()
			check(t, networks(), target, false)
			check(t, networks("0.0.0.0/0", "::/0"), target, false)
		})
	}
}

func TestLoopbackListenerIsRefusedInEverySpelling(t *testing.T) {
	n := listening([]string{"127.0.0.1:8443"})
	for _, text := range []string{
		"127.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1",
		"2002:7f00:1::", "2001:db8::5efe:7f00:1", "2001:0:7f00:1::f5ff:fffe",
	} {
		target := netip.MustParseAddr(text)
		check(t, n, netip.AddrPortFrom(target, 8443).String(), false)
		check(t, n, netip.AddrPortFrom(target, 8444).String(), true)
	}
}

func TestAllowedNetworks(t *testing.T) {
	tests := []struct {
		name   string
		allow  []string
		target string
		want   bool
	}{
		{"within", []string{"10.0.0.0/8"}, "10.9.9.9:80", true},
		{"without", []string{"10.0.0.0/8"}, "11.0.0.1:80", false},
		{"loopback is not named", []string{"10.0.0.0/8"}, "127.0.0.1:80", false},
		{"the second range", []string{"10.0.0.0/8", "192.168.0.0/16"}, "192.168.3.4:80", true},
		{"mapped, within", []string{"10.0.0.0/8"}, "[::ffff:10.9.9.9]:80", true},
		{"a range written mapped", []string{"::ffff:10.0.0.0/104"}, "10.9.9.9:80", true},
		{"beside a range written mapped", []string{"::ffff:10.0.0.0/104"}, "11.0.0.1:80", false},
		{"a range with host bits", []string{"10.1.2.3/8"}, "10.9.9.9:80", true},
		{"IPv6 is not named by IPv4", []string{"0.0.0.0/0"}, "[2001:db8::1]:80", false},
		{"NAT64 within, what it carries without", []string{"64:ff9b::/96"}, "[64:ff9b::a00:1]:80", false},
		{"NAT64 and what it carries", []string{"64:ff9b::/96", "10.0.0.0/8"}, "[64:ff9b::a00:1]:80", true},
		{"what NAT64 carries alone", []string{"10.0.0.0/8"}, "[64:ff9b::a00:1]:80", false},
		{"6to4 of a private address", []string{"2000::/3"}, "[2002:a00:1::1]:80", false},

		{"link-local not named", []string{"0.0.0.0/0"}, "169.254.1.1:80", false},
		{"link-local named", []string{"169.254.0.0/16"}, "169.254.1.1:80", true},
		{"a part of link-local named", []string{"169.254.1.0/24"}, "169.254.1.1:80", true},
		{"another part of link-local named", []string{"169.254.2.0/24", "0.0.0.0/0"}, "169.254.1.1:80", false},
		{"IPv6 link-local not named", []string{"::/0"}, "[fe80::1]:80", false},
		{"IPv6 link-local named", []string{"fe80::/10"}, "[fe80::1]:80", true},
		{"metadata is not named by link-local", []string{"169.254.0.0/16"}, "169.254.169.254:80", false},
		{"metadata named", []string{"169.254.169.254/32"}, "169.254.169.254:80", true},
		{"Azure not named", []string{"168.63.0.0/16"}, "168.63.129.16:80", false},
		{"Azure named", []string{"168.63.129.16/32"}, "168.63.129.16:80", true},

		{"unspecified named", []string{"0.0.0.0/32"}, "0.0.0.0:80", false},
		{"IPv6 unspecified named", []string{"::/128"}, "[::]:80", false},
		{"unspecified, mapped", []string{"0.0.0.0/0", "::/0"}, "[::ffff:0.0.0.0]:80", false},
		{"unspecified by NAT64", []string{"0.0.0.0/0", "::/0"}, "[64:ff9b::]:80", false},
		{"multicast named", []string{"224.0.0.0/4"}, "224.0.0.1:80", false},
		{"broadcast named", []string{"255.255.255.255/32"}, "255.255.255.255:80", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { check(t, networks(tt.allow...), tt.target, tt.want) })
	}
}

func TestAPrefixThatIsNotValidAllowsNothing(t *testing.T) {
	n := upstream.NewNetworks([]netip.Prefix{{}}, nil)
	check(t, n, "10.0.0.1:80", false)
}

func TestOwnListenersAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		own    string
		target string
		want   bool
	}{
		{"itself", "127.0.0.1:8443", "127.0.0.1:8443", false},
		{"another port", "127.0.0.1:8443", "127.0.0.1:8444", true},
		{"another address", "127.0.0.1:8443", "127.0.0.2:8443", true},
		{"written mapped", "[::ffff:127.0.0.1]:8443", "127.0.0.1:8443", false},
		{"IPv6", "[::1]:8443", "[::1]:8443", false},
		{"with a zone", "[fd00::1%lo]:8443", "[fd00::1]:8443", false},
		{"0.0.0.0 by loopback", "0.0.0.0:8443", "127.0.0.1:8443", false},
		{"0.0.0.0 by the rest of loopback", "0.0.0.0:8443", "127.9.9.9:8443", false},
		{"0.0.0.0 by IPv6 loopback", "0.0.0.0:8443", "[::1]:8443", false},
		{"[::] by loopback", "[::]:8443", "127.0.0.1:8443", false},
		{"[::] by IPv6 loopback", "[::]:8443", "[::1]:8443", false},
		{"[::] by loopback in NAT64", "[::]:8443", "[64:ff9b::7f00:1]:8443", false},
		{"0.0.0.0, another port", "0.0.0.0:8443", "127.0.0.1:443", true},
		{"0.0.0.0, another machine", "0.0.0.0:443", "192.0.2.1:443", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, listening([]string{tt.own}), tt.target, tt.want)
			if !tt.want { // also when a list names it
				check(t, listening([]string{tt.own}, "0.0.0.0/0", "::/0", "127.0.0.1/32", "::1/128"), tt.target, false)
			}
		})
	}
}

func TestAWildcardListenerIsEveryInterface(t *testing.T) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, wildcard := range []string{"0.0.0.0:9443", "[::]:9443"} {
		n := listening([]string{wildcard})
		for _, a := range found {
			addr, err := netip.ParsePrefix(a.String())
			if err != nil {
				t.Fatal(err)
			}
			check(t, n, netip.AddrPortFrom(addr.Addr(), 9443).String(), false)
		}
	}
}

func TestWithoutRulesNothingIsAllowed(t *testing.T) {
	var none *upstream.Networks
	check(t, none, "10.0.0.1:80", false)
	check(t, networks(), "10.0.0.1:80", true)
	if networks().Check(netip.AddrPort{}) == nil {
		t.Error("no address is allowed")
	}
}

func BenchmarkCheck(b *testing.B) {
	n := listening([]string{"0.0.0.0:8443", "127.0.0.1:9901"})
	target := netip.MustParseAddrPort("10.0.0.1:443")
	b.ReportAllocs()
	for b.Loop() {
		if err := n.Check(target); err != nil {
			b.Fatal(err)
		}
	}
}
