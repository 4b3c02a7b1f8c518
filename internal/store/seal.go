package store

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// A sealed value is XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03, section
// 2.3) under Config.Key, as base64 text:
//
//	nonce (24 bytes, random) | ciphertext | tag (16)
//
// Its place is authenticated with it: moved to another row, column or table it
// does not open.

// place is where a sealed value lives. No part has a NUL.
type place struct{ table, column, row string }

func (p place) bytes() []byte {
	return []byte("arbiter store v1\x00" + p.table + "\x00" + p.column + "\x00" + p.row)
}

var errSealed = errors.New("a sealed value is damaged, or belongs elsewhere")

func newAEAD(key [32]byte) (cipher.AEAD, error) {
	if key == ([32]byte{}) {
		return nil, fmt.Errorf("%w: it is all zeros", ErrKey)
	}
	return chacha20poly1305.NewX(key[:])
}

func (s *Store) seal(value []byte, at place) string {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(value)+s.aead.Overhead())
	rand.Read(nonce)
	return base64.StdEncoding.EncodeToString(s.aead.Seal(nonce, nonce, value, at.bytes()))
}

// unseal returns the value; one that does not open is a fault of the database,
// whose key was checked when it was opened.
func (s *Store) unseal(text string, at place) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) < s.aead.NonceSize() {
		return nil, fault{errSealed}
	}
	value, err := s.aead.Open(nil, raw[:s.aead.NonceSize()], raw[s.aead.NonceSize():], at.bytes())
	if err != nil {
		return nil, fault{errSealed}
	}
	return value, nil
}
