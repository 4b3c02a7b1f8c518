package store

// Exec runs SQL on the one connection that writes, for tests that break
// things: a PRAGMA of it holds for every later write.
func (s *Store) Exec(query string, args ...any) error {
	_, err := s.writer.Exec(query, args...)
	return err
}
