package jsonrpc

import (
	"bytes"
	"hash/maphash"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
)

// fewNames is how many names of an object are compared one by one. Beyond that
// a set of their hashes keeps work and memory linear; the hash is seeded, so
// nobody can prepare collisions, and one by chance (1 in 10^8 for the largest
// body there is) refuses.
const fewNames = 16

var seed = maphash.MakeSeed()

// foldedNames finds two names of one object that are equal after case folding.
// The objects being read are nested, so their names lie on one stack.
type foldedNames struct {
	text    []byte // folded names of all open objects, back to back
	ends    []int  // where each ends in text
	objects []foldedObject
}

type foldedObject struct {
	first int                 // its first name in ends
	many  map[uint64]struct{} // hashes of all its names; nil for up to fewNames
}

// reset forgets everything but the memory.
func (f *foldedNames) reset() {
	clear(f.objects[:cap(f.objects)])
	f.text, f.ends, f.objects = f.text[:0], f.ends[:0], f.objects[:0]
}

// open starts an object inside the current one.
func (f *foldedNames) open() {
	f.objects = append(f.objects, foldedObject{first: len(f.ends)})
}

// close forgets the current object.
func (f *foldedNames) close() {
	last := len(f.objects) - 1
	first := f.objects[last].first
	f.text = f.text[:f.start(first)]
	f.ends = f.ends[:first]
	f.objects = f.objects[:last]
}

// add tells whether name is new to the current object.
func (f *foldedNames) add(name []byte) bool {
	object := &f.objects[len(f.objects)-1]
	start := len(f.text)
	f.text = appendFolded(f.text, name)
	folded := f.text[start:]
	if object.many == nil && len(f.ends)-object.first == fewNames {
		object.many = f.hashes(object.first)
	}
	if object.many != nil {
		f.text = f.text[:start]
		before := len(object.many)
		object.many[maphash.Bytes(seed, folded)] = struct{}{}
		return len(object.many) > before
	}
	for i := object.first; i < len(f.ends); i++ {
		if bytes.Equal(f.name(i), folded) {
			f.text = f.text[:start]
			return false
		}
	}
	f.ends = append(f.ends, len(f.text))
	return true
}

// hashes is the set of the names from first on.
func (f *foldedNames) hashes(first int) map[uint64]struct{} {
	set := make(map[uint64]struct{}, 4*fewNames)
	for i := first; i < len(f.ends); i++ {
		set[maphash.Bytes(seed, f.name(i))] = struct{}{}
	}
	return set
}

// name is the folded name i.
func (f *foldedNames) name(i int) []byte { return f.text[f.start(i):f.ends[i]] }

// start is where the name i begins in text.
func (f *foldedNames) start(i int) int {
	if i == 0 {
		return 0
	}
	return f.ends[i-1]
}

// appendFolded appends name with its case folded (Unicode, full: "ß" is "ss").
func appendFolded(dst, name []byte) []byte {
	start := len(dst)
	for _, c := range name {
		if c >= utf8.RuneSelf {
			return appendFoldedUnicode(dst[:start], name)
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// appendFoldedUnicode folds fully, then takes the least of the runes that fold
// to each other simply: the tables of package cases alone swap the two cases of
// Cherokee letters, and are older than package unicode's.
func appendFoldedUnicode(dst, name []byte) []byte {
	for _, c := range string(cases.Fold().Bytes(name)) {
		least := c
		if c >= utf8.RuneSelf {
			for other := unicode.SimpleFold(c); other != c; other = unicode.SimpleFold(other) {
				least = min(least, other)
			}
		}
		dst = utf8.AppendRune(dst, least)
	}
	return dst
}
