package syncguard_test

// Passwords that change and connections that the program makes.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// aUser is the URL of a server on TCP with a user that it lets in with any password.
func aUser(t *testing.T) string {
	t.Helper()
	_, port := startRedisTCP(t, func(port int) []string { return []string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1"} })
	return fmt.Sprintf("redis://default@127.0.0.1:%d", port)
}

func asks(t *testing.T, client *syncguard.Client) error {
	t.Helper()
	_, err := client.IsLocked(context.Background(), name(t))
	return err
}

func TestPasswordProvider(t *testing.T) {
	url := aUser(t)
	var calls atomic.Int32
	client := open(t, url, syncguard.WithPassword(func(ctx context.Context) (string, error) {
		if _, ok := ctx.Deadline(); !ok {
			return "", errors.New("no deadline")
		}
		calls.Add(1)
		return "anything", nil
	}))
	must(t, asks(t, client))
	must(t, asks(t, client))
	if calls.Load() != 1 {
		t.Fatalf("%d calls for one connection", calls.Load())
	}
	for what, provider := range map[string]func(context.Context) (string, error){
		"an error":     func(context.Context) (string, error) { return "hunter2", errors.New("hunter2") },
		"a panic":      func(context.Context) (string, error) { panic("planted") },
		"a NUL":        func(context.Context) (string, error) { return "hunter2\x00", nil },
		"a long text":  func(context.Context) (string, error) { return strings.Repeat("hunter2", 10000), nil },
		"its deadline": func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() },
	} {
		client := open(t, url, syncguard.WithPassword(provider), syncguard.WithOperationTimeout(300*time.Millisecond))
		err := asks(t, client)
		if !errors.Is(err, syncguard.ErrServiceUnavailable) && !errors.Is(err, syncguard.ErrNetworkTimeout) {
			t.Fatalf("%s: %v", what, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err := syncguard.Open("redis://u:hunter2@127.0.0.1/", syncguard.WithPassword(func(context.Context) (string, error) { return "", nil }))
	is(t, err, syncguard.ErrInvalidArgument)
}

func TestPasswordProviderThatHangs(t *testing.T) {
	var calls atomic.Int32
	ended := make(chan error, 1)
	client := open(t, aUser(t), syncguard.WithOperationTimeout(300*time.Millisecond), syncguard.WithPassword(func(ctx context.Context) (string, error) {
		calls.Add(1)
		// It passes its deadline over, and hears of the end of the client.
		for ctx.Err() != context.Canceled {
			time.Sleep(time.Millisecond)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				break
			}
		}
		ended <- ctx.Err()
		return "", ctx.Err()
	}))
	if err := asks(t, client); !errors.Is(err, syncguard.ErrNetworkTimeout) && !errors.Is(err, syncguard.ErrServiceUnavailable) {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("its context does not end")
	}
}

func TestConnector(t *testing.T) {
	url := aUser(t)
	var dialer net.Dialer
	var calls atomic.Int32
	dial := func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		calls.Add(1)
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	}
	client := open(t, url, syncguard.WithConnector(dial))
	guard := lock(t, client, name(t))
	must(t, guard.Release(context.Background()))
	if calls.Load() == 0 {
		t.Fatal("it was not called")
	}
	for what, wanted := range map[string]struct {
		connect func(context.Context, string, uint16) (net.Conn, error)
		err     error
	}{
		"refused": {func(context.Context, string, uint16) (net.Conn, error) { return nil, syscall.ECONNREFUSED }, syncguard.ErrServiceUnavailable},
		"denied":  {func(context.Context, string, uint16) (net.Conn, error) { return nil, syscall.EACCES }, syncguard.ErrAuthFailed},
		"nothing": {func(context.Context, string, uint16) (net.Conn, error) { return nil, nil }, syncguard.ErrServiceUnavailable},
		"a panic": {func(context.Context, string, uint16) (net.Conn, error) { panic("planted") }, syncguard.ErrServiceUnavailable},
		"no file": {func(context.Context, string, uint16) (net.Conn, error) {
			c, _ := net.Pipe()
			return tls.Client(c, nil), nil
		}, syncguard.ErrServiceUnavailable},
		"too late": {func(ctx context.Context, _ string, _ uint16) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, syncguard.ErrNetworkTimeout},
	} {
		client := open(t, url, syncguard.WithConnector(wanted.connect), syncguard.WithOperationTimeout(500*time.Millisecond))
		if err := asks(t, client); !errors.Is(err, wanted.err) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestClientCertificateFiles(t *testing.T) {
	client := open(t, strings.Replace(aUser(t), "redis:", "rediss:", 1), syncguard.WithTLSClientCert("/nowhere/cert.pem", "/nowhere/key.pem"),
		syncguard.WithTLSCAFile("/nowhere/ca.pem"))
	is(t, asks(t, client), syncguard.ErrInvalidArgument)
	_, err := syncguard.Open("rediss://127.0.0.1", syncguard.WithTLSClientCert("a\x00", "b"))
	is(t, err, syncguard.ErrInvalidArgument)
}
