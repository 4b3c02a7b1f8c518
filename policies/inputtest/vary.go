// Package inputtest makes inputs that differ in one field, for the tests of
// every form that an input is written in. Only tests use it.
package inputtest

import (
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Vary yields a copy of full for each exported field in it, at any depth, that
// has another value there, and the field's path; a pointer is varied by what it
// points to, and by nil. It panics when full has an empty field, or one of a kind
// that it does not know.
func Vary[T any](full *T) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for i := 0; ; i++ {
			out := new(T)
			c := copier{left: i}
			c.copy(reflect.ValueOf(out).Elem(), reflect.ValueOf(full).Elem(), "")
			if c.varied == "" || !yield(c.varied, out) {
				return
			}
		}
	}
}

// copier copies everything but the one field that it comes to when none is left.
type copier struct {
	left   int
	varied string
}

// now reports that this is the field to vary.
func (c *copier) now(path string) bool {
	if c.left--; c.left != -1 {
		return false
	}
	c.varied = path
	return true
}

func (c *copier) copy(to, from reflect.Value, path string) {
	if from.IsZero() {
		panic(path + " is empty: what cannot be told from its absence is not tested")
	}
	switch value := from.Interface().(type) {
	case jsontext.Value:
		c.leaf(to, from, reflect.ValueOf(jsontext.Value(`{"varied":1}`)), path)
		return
	case time.Time:
		c.leaf(to, from, reflect.ValueOf(value.Add(time.Second)), path)
		return
	}
	switch from.Kind() {
	case reflect.Struct:
		for i := range from.NumField() {
			if field := from.Type().Field(i); field.IsExported() {
				c.copy(to.Field(i), from.Field(i), path+"."+field.Name)
			}
		}
	case reflect.Pointer:
		if !c.now(path + " is nil") {
			to.Set(reflect.New(from.Type().Elem()))
			c.copy(to.Elem(), from.Elem(), path)
		}
	case reflect.Slice:
		c.slice(to, from, path)
	default:
		c.leaf(to, from, another(from, path), path)
	}
}

// slice varies each of the items, and their number.
func (c *copier) slice(to, from reflect.Value, path string) {
	to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
	for i := range from.Len() {
		c.copy(to.Index(i), from.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
	if c.now(path + " is one more") {
		to.Set(reflect.Append(to, from.Index(0)))
	}
}

func (c *copier) leaf(to, from, other reflect.Value, path string) {
	if to.Set(from); c.now(path) {
		to.Set(other)
	}
}

// another is a value of from's kind that is not from.
func another(from reflect.Value, path string) reflect.Value {
	out := reflect.New(from.Type()).Elem()
	switch from.Kind() {
	case reflect.String:
		out.SetString(from.String() + "y")
	case reflect.Bool:
		out.SetBool(!from.Bool())
	case reflect.Int:
		out.SetInt(from.Int() + 1)
	case reflect.Array: // an id
		out.Set(from)
		out.Index(0).SetUint(from.Index(0).Uint() + 1)
	case reflect.Map: // of strings
		out.Set(reflect.MakeMap(from.Type()))
		for _, key := range from.MapKeys() {
			out.SetMapIndex(key, reflect.ValueOf(from.MapIndex(key).String()+"y"))
		}
	default:
		panic(path + " is " + from.Kind().String() + ", which is not varied yet")
	}
	return out
}
