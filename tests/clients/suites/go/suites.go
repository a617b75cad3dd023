// Package suites pins the libraries whose own tests are run against a cluster, and what these tests need.
package suites

import _ "github.com/twmb/franz-go/pkg/kgo"
