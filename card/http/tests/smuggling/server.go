// Tells in X-Echo what it takes a request for: method, target, Host, bytes of content. Ends with its standard input.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	echo := func(reply http.ResponseWriter, request *http.Request) {
		length, _ := io.Copy(io.Discard, request.Body)
		host := request.Host
		if host == "" {
			host = "(none)"
		}
		reply.Header()["X-Echo"] = []string{fmt.Sprintf("%s %s %s %d", request.Method, request.RequestURI, host, length)}
		reply.Header().Set("Content-Length", "0")
	}
	panic(http.Serve(listener, http.HandlerFunc(echo)))
}
