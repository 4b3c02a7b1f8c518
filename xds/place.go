package xds

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"
)

// Place is where an Envoy stands: all that differs between the Envoys of one
// gateway. Each Envoy brings its own in the metadata of its node.
type Place struct {
	Listen   netip.AddrPort // where clients connect
	Extauthz string         // unix socket of the Check and Guard beside it
}

// ErrPlace says that an Envoy cannot stand where it says.
var ErrPlace = errors.New("place of an envoy")

// The keys of a node's metadata.
const (
	placeListen   = "listen"
	placeExtauthz = "extauthz"
)

// What is longer is neither a socket's path on any system, nor an address.
const (
	maxSocketPath = 107
	maxListen     = 128
)

// standIn is a place for those that have not come yet: a State is held against
// all rules before the first Envoy connects.
var standIn = Place{Listen: netip.MustParseAddrPort("127.0.0.1:1"), Extauthz: "/extauthz.sock"}

// Metadata is what an Envoy of this place is started with, for the metadata of
// its node. The error wraps ErrPlace.
func (p Place) Metadata() (*structpb.Struct, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		placeListen:   structpb.NewStringValue(p.Listen.String()),
		placeExtauthz: structpb.NewStringValue(p.Extauthz),
	}}, nil
}

// placeOf reads the metadata of a node.
func placeOf(metadata *structpb.Struct) (Place, error) {
	text := metadata.GetFields()[placeListen].GetStringValue()
	if text == "" || len(text) > maxListen {
		return Place{}, fmt.Errorf("%w: its node's metadata does not say where it listens", ErrPlace)
	}
	listen, err := netip.ParseAddrPort(text)
	if err != nil {
		return Place{}, fmt.Errorf("%w: %w", ErrPlace, err)
	}
	p := Place{Listen: listen, Extauthz: metadata.GetFields()[placeExtauthz].GetStringValue()}
	return p, p.check()
}

// check refuses a place that Envoy would refuse, or read in another way than
// meant: it takes port 0 for any port, so that nobody knew which is ours, and a
// path that begins with @ for a name that every user of the machine can take.
func (p Place) check() error {
	switch {
	case !p.Listen.IsValid():
		return fmt.Errorf("%w: no address to listen on", ErrPlace)
	case p.Listen.Port() == 0:
		return fmt.Errorf("%w: no port to listen on", ErrPlace)
	case p.Extauthz == "":
		return fmt.Errorf("%w: no socket of extauthz", ErrPlace)
	case len(p.Extauthz) > maxSocketPath || p.Extauthz[0] == '@' || !utf8.ValidString(p.Extauthz) || strings.ContainsRune(p.Extauthz, 0):
		return fmt.Errorf("%w: the socket of extauthz is not the path of a file", ErrPlace)
	}
	return nil
}
