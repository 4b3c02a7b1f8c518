package record

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/mask"
)

// MostValues is how many bytes the argument values of one request have at the
// most, all its messages together.
const MostValues = 16 << 10

// TooLong stands in place of all of them where there are more.
const TooLong = "too long"

// Values are the arguments of a request's messages as a JSON array with one
// item each, null where there are none, blanked as the mask says. What is too
// long, before or after, is the one item TooLong. nil: no message has
// arguments, or they cannot be read.
func Values(m *mask.Mask, arguments []jsontext.Value) []byte {
	size := 0
	for _, value := range arguments {
		size += len(value)
	}
	switch {
	case size == 0:
		return nil
	case size > MostValues:
		return []byte(`["` + TooLong + `"]`)
	}
	out := append(make([]byte, 0, size+2), '[')
	for i, value := range arguments {
		if i > 0 {
			out = append(out, ',')
		}
		if len(value) == 0 {
			value = jsontext.Value("null")
		}
		var err error
		if out, err = m.Append(out, value); err != nil {
			return nil
		}
	}
	if out = append(out, ']'); len(out) > MostValues {
		return []byte(`["` + TooLong + `"]`)
	}
	return out
}
