package xds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// serverCertificate is the gateway's certificate with its key, swapped in a
// running Envoy without touching connections.
func serverCertificate(s State) *tlsv3.Secret {
	return &tlsv3.Secret{
		Name: serverCertName,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline(s.Certificate),
			PrivateKey:       inline(s.Key.Reveal()),
		}},
	}
}

func inline(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
}
