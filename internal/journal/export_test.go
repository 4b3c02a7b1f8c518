package journal

import "os"

// Keep makes the journal write itself anew after twice so many lines.
func (j *Journal) Keep(entries int) { j.keep = entries }

// Lines is how many lines the file has.
func (j *Journal) Lines() int { return j.lines }

// Path is where the file is.
func (j *Journal) Path() string { return j.path }

// Break swaps the open file, as a disk that fails would, and returns the one
// before.
func (j *Journal) Break(with *os.File) *os.File {
	before := j.file
	j.file = with
	return before
}
