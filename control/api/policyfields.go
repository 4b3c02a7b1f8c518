package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arbiter-gateway/arbiter/internal/mask"
	"github.com/arbiter-gateway/arbiter/internal/store"
)

// What a server may give its policies, and record.
const (
	maxPolicyData = 32 << 10           // bytes
	maxDataDepth  = 32                 // objects and arrays inside each other
	minKeep       = int64(60)          // seconds
	maxKeep       = int64(30 * 86_400) // seconds
	defaultKeep   = int64(86_400)      // seconds
)

// recordingFields is a RecordArguments as it comes in: a merge patch of the one
// that is stored, so that a mask which is not given again stays.
type recordingFields struct {
	Mask        optional[[]string] `json:"mask"`
	KeepSeconds optional[int64]    `json:"keep_seconds"`
}

// editPolicy sets what policies see of a server, and what is recorded of it.
func (f *serverFields) editPolicy(srv *store.Server, found *faults) {
	if f.Grants.given {
		srv.Grants = grantsValue(f.Grants, found)
	}
	if f.PolicyData.given {
		srv.PolicyData = policyData(f.PolicyData, found)
	}
	if f.RecordArguments.given {
		srv.RecordArguments = f.RecordArguments.value.merged(f.RecordArguments.null, srv.RecordArguments, found)
	}
	if f.ToolChanges.given {
		f.ToolChanges.into(&srv.ToolChanges, store.ToolChangesAlarm)
		if srv.ToolChanges != store.ToolChangesAlarm && srv.ToolChanges != store.ToolChangesDeny {
			found.add("tool_changes", "must be alarm or deny")
		}
	}
}

// policyData checks an object of the operator's own; nil for null.
func policyData(f optional[jsontext.Value], found *faults) jsontext.Value {
	if f.null {
		return nil
	}
	out := slices.Clone(f.value)
	if err := out.Compact(); err != nil || out.Kind() != '{' {
		found.add("policy_data", "must be an object")
		return nil
	}
	if len(out) > maxPolicyData {
		found.add("policy_data", "is longer than %d KiB", maxPolicyData>>10)
	} else if err := checkData(out); err != nil {
		found.add("policy_data", "%v", err)
	}
	return out
}

// checkData bounds what each question to a policy has to carry: how deep it is,
// and numbers that arithmetic would blow up.
func checkData(value jsontext.Value) error {
	dec := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		token, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.New("is not JSON")
		case dec.StackDepth() > maxDataDepth:
			return fmt.Errorf("has more than %d objects and arrays inside each other", maxDataDepth)
		case token.Kind() == '0':
			n, err := strconv.ParseFloat(token.String(), 64)
			if err != nil || math.IsInf(n, 0) {
				return errors.New("has a number that is too large")
			}
		}
	}
}

// merged is what is recorded after the patch; nil: nothing.
func (f *recordingFields) merged(off bool, before *store.RecordArguments, found *faults) *store.RecordArguments {
	if off {
		return nil
	}
	var pointers []string
	keep := defaultKeep
	if before != nil {
		pointers, keep = before.Mask, int64(before.Keep/time.Second)
	}
	f.Mask.into(&pointers, nil)
	f.KeepSeconds.into(&keep, defaultKeep)
	if keep < minKeep || keep > maxKeep {
		found.add("record_arguments.keep_seconds", "must be %d to %d (30 days)", minKeep, maxKeep)
		keep = defaultKeep
	}
	checkMasks(pointers, found)
	return &store.RecordArguments{Mask: pointers, Keep: time.Duration(keep) * time.Second}
}

func checkMasks(pointers []string, found *faults) {
	const field = "record_arguments.mask"
	if len(pointers) > mask.MostPointers {
		found.add(field, "are more than %d", mask.MostPointers)
		return
	}
	for i, pointer := range pointers {
		if _, err := mask.Parse([]string{pointer}); err != nil {
			found.add(element(field, i), "is %v", mask.ErrPointer)
		} else if slices.Contains(pointers[:i], pointer) {
			found.add(element(field, i), "given twice")
		}
	}
}
