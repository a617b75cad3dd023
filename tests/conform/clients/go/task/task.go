// Package task has what adapters in Go share: their task, which is in the environment, and what they print (docs/conform.md).
package task

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

var Name, Topic, Group = os.Getenv("TESTCASE"), os.Getenv("TOPIC"), os.Getenv("GROUP")
var Bootstrap, Partition = strings.Split(os.Getenv("BOOTSTRAP"), ","), int32(Number("PARTITION"))
var Transactions, Commits = Number("TRANSACTIONS"), os.Getenv("END") == "commit"
var Config = map[string]string{}

func init() {
	for _, line := range strings.Split(os.Getenv("CONFIG"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		Config[name] = value
	}
}

// Supports ends with 127 if the task is none of these.
func Supports(names ...string) {
	if !slices.Contains(names, Name) {
		os.Exit(127)
	}
}

// Number is a variable of the environment, 0 without it.
func Number(name string) int { return Parsed(os.Getenv(name)) }

// Parsed is the number in a text, 0 if there is none.
func Parsed(text string) int { number, _ := strconv.Atoi(text); return number }

// Values are those of the transaction with this number.
func Values(number int) (values []string) {
	for each := number * Number("RECORDS"); each < (number+1)*Number("RECORDS"); each++ {
		value := strconv.Itoa(each)
		values = append(values, value+strings.Repeat(".", max(0, Number("SIZE")-len(value))))
	}
	return values
}

// Pause is the one after each record.
func Pause() { time.Sleep(time.Duration(Number("PAUSE_MS")) * time.Millisecond) }

// Check ends with 1 if there is an error.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Tell prints a record that was acknowledged or read, and says whether it is the last one of a consumer.
func Tell(partition int32, offset int64, value []byte) bool {
	fmt.Printf("{\"partition\": %d, \"offset\": %d, \"value\": \"%s\"}\n", partition, offset, value)
	return string(value) == "end"
}
