package policy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/arbiter-gateway/arbiter/policies/bundle"
)

// How a directory is watched: by names, sizes and times of its files at each
// look, and as a whole now and then, for what these do not show. What differs is
// read once two looks have found the same: a save that is half done differs
// again at the next one.
const (
	lookEvery = 200 * time.Millisecond
	readEvery = 3 * time.Second
	readTries = 5
	filesMost = 10_000 // below a directory, whatever they are
)

// Directory is a Source: a directory that people edit.
type Directory struct {
	path string
	seen [sha256.Size]byte // what was read last, as look shows it
	read time.Time
}

// NewDirectory watches the directory at path.
func NewDirectory(path string) (*Directory, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("policy directory: %w", err)
	}
	return &Directory{path: absolute}, nil
}

// Origin implements Source.
func (d *Directory) Origin() string { return "directory " + d.path }

// Read implements Source. It reads again what changes while it is read.
func (d *Directory) Read(ctx context.Context) (Offer, error) {
	for range readTries {
		before := d.look()
		found, err := bundle.ReadDir(d.path)
		if ctx.Err() != nil {
			return Offer{}, ctx.Err()
		}
		if d.look() == before {
			d.seen, d.read = before, time.Now()
			return Offer{Bundle: found}, err
		}
	}
	d.read = time.Now()
	return Offer{}, errors.New("the files change while they are read")
}

// Wait implements Source.
func (d *Directory) Wait(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	last := d.seen
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := d.look()
		if now == last && now != d.seen || time.Since(d.read) > readEvery {
			return
		}
		last = now
	}
}

// look sums up what can be seen without reading: that there is no directory,
// too.
func (d *Directory) look() [sha256.Size]byte {
	sum, files := sha256.New(), 0
	_ = filepath.WalkDir(d.path+string(filepath.Separator), func(path string, entry fs.DirEntry, err error) error {
		if files++; files > filesMost {
			return fs.SkipAll
		}
		switch {
		case err != nil:
			fmt.Fprintf(sum, "%q: %v\n", path, err)
		case entry.IsDir() && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir():
			note(sum, path)
		}
		return nil
	})
	return [sha256.Size]byte(sum.Sum(nil))
}

// note adds one file, where a link leads.
func note(sum hash.Hash, path string) {
	if base := filepath.Base(path); !strings.HasSuffix(base, ".rego") && !strings.HasPrefix(base, "data.") {
		return // an editor's, or a document
	}
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintf(sum, "%q: %v\n", path, err)
		return
	}
	fmt.Fprintf(sum, "%q %d %d %v\n", path, info.Size(), info.ModTime().UnixNano(), info.Mode())
}
