// Send or consume with the Go client. The first argument is "send" or "consume"; the files of these
// names tell what follows.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var printing sync.Mutex

// say prints a line, all of it at once.
func say(format string, values ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf(format+"\n", values...)
}

// must ends the program with 3 after an error that no scenario expects.
func must(err error) {
	if err != nil {
		say("%v", err)
		os.Exit(3)
	}
}

// credentials are filled in when the flags are parsed; the client does not sign while they are empty.
func credentials(flags *flag.FlagSet) *primitive.Credentials {
	found := &primitive.Credentials{}
	flags.Func("credentials", "", func(text string) error {
		found.AccessKey, found.SecretKey, _ = strings.Cut(text, ":")
		return nil
	})
	return found
}

func main() {
	rlog.SetLogLevel("error")
	words := os.Args[2:]
	switch os.Args[1] {
	case "send":
		os.Exit(send(words))
	case "consume":
		os.Exit(consume(words))
	}
	say("neither send nor consume: %s", os.Args[1])
	os.Exit(2)
}
