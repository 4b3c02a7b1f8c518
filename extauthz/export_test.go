package extauthz

// Errors that tests tell apart.
var (
	ErrRecordsFull = errRecordsFull
	ErrChanging    = errChanging
)

// PolicyFault is an answer of the policy that cannot be followed.
type PolicyFault = policyFault

// DecideByTime is what the server does every minute.
func (s *Server) DecideByTime() { s.decideByTime() }

// HoldAnswers takes all of the room for lists that are held back but rest bytes,
// until the returned function is called.
func (s *Server) HoldAnswers(rest int) (release func()) {
	s.answers.take(bodiesMost - rest)
	return func() { s.answers.release(bodiesMost - rest) }
}

// HeldAnswers is how many bytes of lists count as held back.
func (s *Server) HeldAnswers() int64 { return s.answers.held.Load() }
