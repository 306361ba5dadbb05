package syncguard_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	syncguard "github.com/syncguard/syncguard/ffi/go"
)

// Rows 36 to 38, 41, 42 and 66: servers that refuse, lie or hang. All of it is the library's own; here is what a Go program sees of
// it.

// 36: wrong password, no permission, no such database; no secret in the text.
func TestCredentials(t *testing.T) {
	server := startRedis(t, "--requirepass", "right")
	for _, url := range []string{"redis+unix://:hunter2@" + server.socket(), server.url()} {
		client, err := syncguard.Open(url)
		must(t, err)
		_, err = client.Lock(background, "k")
		is(t, err, syncguard.ErrAuthFailed)
		if strings.Contains(err.Error(), "hunter2") {
			t.Fatal(err)
		}
		must(t, client.Close())
	}
	server.cli(t, "-a", "right", "--no-auth-warning", "ACL", "SETUSER", "weak", "on", ">pass", "~*", "+get")
	client, err := syncguard.Open("redis+unix://weak:pass@" + server.socket())
	must(t, err)
	defer client.Close()
	_, err = client.Lock(background, "k")
	is(t, err, syncguard.ErrAuthFailed)

	pg := postgres(t)
	open(t, pg.url())
	missing, err := syncguard.Open(strings.Replace(pg.url(), "/postgres?", "/missing?", 1))
	must(t, err)
	defer missing.Close()
	_, err = missing.Lock(background, "k")
	is(t, err, syncguard.ErrInvalidArgument)
	pg.sql(t, "drop role if exists weak; create role weak login")
	weak, err := syncguard.Open(strings.Replace(pg.url(), "postgres@", "weak@", 1))
	must(t, err)
	defer weak.Close()
	_, err = weak.Lock(background, "k")
	is(t, err, syncguard.ErrAuthFailed)
}

// answering listens and does with every connection what it is told.
func answering(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				do(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// 37, 38: other services, silence, rubbish: an error by the deadline.
func TestServersThatAreNone(t *testing.T) {
	reply := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			buffer := make([]byte, 4096)
			for {
				if _, err := c.Read(buffer); err != nil {
					return
				}
				if _, err := c.Write([]byte(text)); err != nil {
					return
				}
			}
		}
	}
	silence := func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); time.Sleep(testLimit) }
	endless := func(c net.Conn) {
		chunk := bytes.Repeat([]byte("x"), 1<<16)
		_, _ = c.Write([]byte("+"))
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}
	for name, do := range map[string]func(net.Conn){
		"HTTP":       reply("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"silence":    silence,
		"one byte":   func(c net.Conn) { _, _ = c.Write([]byte("+")); silence(c) },
		"endless":    endless,
		"2 GB":       reply("$2147483647\r\n"),
		"nested":     reply(strings.Repeat("*1\r\n", 1000000)),
		"wrong type": reply("+OK\r\n"),
		"extra":      reply(":0\r\n:0\r\n:0\r\n:0\r\n"),
		"gone":       func(net.Conn) {},
	} {
		for _, scheme := range []string{"redis://%s/", "rediss://%s/", "postgres://u@%s/db?sslmode=disable", "postgres://u@%s/db?sslmode=require"} {
			name, do, scheme := name, do, scheme
			t.Run(name+" "+scheme[:9], func(t *testing.T) {
				t.Parallel()
				client, err := syncguard.Open(fmt.Sprintf(scheme, answering(t, do)), syncguard.WithOperationTimeout(300*time.Millisecond))
				must(t, err)
				defer client.Close()
				begun := time.Now()
				guard, err := client.TryLock(background, "k")
				if err == nil {
					t.Fatalf("granted, with fence %s", guard.Fence())
				}
				if took := time.Since(begun); took > testLimit/2 {
					t.Fatalf("it took %v", took)
				}
			})
		}
	}
}

// 41: a fence counter at its limit, or broken: no lock is taken.
func TestBrokenCounters(t *testing.T) {
	server := redis(t)
	client := open(t, server.url())
	for _, counter := range []string{"900000000000000", "999999999999999", "9007199254740992", "9223372036854775807", "abc", "-5"} {
		key := name(t)
		must(t, lock(t, client, key).Release(background))
		server.cli(t, "SET", "syncguard:fence:syncguard:"+key, counter)
		_, err := client.TryLock(background, key)
		is(t, err, syncguard.ErrInternal)
		if !free(t, client, key) {
			t.Fatalf("%s: the lock was taken", counter)
		}
	}
	wrong := name(t)
	server.cli(t, "RPUSH", "syncguard:fence:syncguard:"+wrong, "1")
	if _, err := client.TryLock(background, wrong); err == nil || !free(t, client, wrong) {
		t.Fatalf("a list is no counter: %v", err)
	}
	pg := postgres(t)
	client = open(t, pg.url())
	key := name(t)
	must(t, lock(t, client, key).Release(background))
	pg.sql(t, "update syncguard_fence_counters set fence = 900000000000000 where key_debug = '"+key+"' or fence_key like '%"+key+"'")
	_, err := client.TryLock(background, key)
	is(t, err, syncguard.ErrInternal)
	if !free(t, client, key) {
		t.Fatal("the lock was taken")
	}
}

// 42: a foreign value where a lock is kept is never granted.
func TestForeignValues(t *testing.T) {
	server := redis(t)
	client := open(t, server.url())
	for _, value := range []string{"garbage", "{}", "null", strings.Repeat("x", 100000), `{"lockId":1}`, "[1]"} {
		key := name(t)
		server.cli(t, "SET", "syncguard:"+key, value)
		if guard, err := client.TryLock(background, key); err == nil {
			t.Fatalf("%.20s: granted with fence %s", value, guard.Fence())
		}
		if server.cli(t, "GET", "syncguard:"+key) != value {
			t.Fatalf("%.20s was touched", value)
		}
	}
	// In another order, as another library may write it: held.
	key := name(t)
	soon := time.Now().Add(time.Minute).UnixMilli()
	server.cli(t, "SET", "syncguard:"+key, fmt.Sprintf(`{"fence":"000000000000007","key":"%s","acquiredAtMs":%d,"expiresAtMs":%d,"lockId":"%s"}`,
		key, soon-60000, soon, strings.Repeat("a", 22)))
	_, err := client.TryLock(background, key)
	is(t, err, syncguard.ErrLocked)
}

// 66: certificates that do not fit are refused; one that fits is not.
func TestTLS(t *testing.T) {
	now := time.Now()
	good := &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	expired := *good
	expired.NotAfter = now.Add(-time.Minute)
	elsewhere := *good
	elsewhere.IPAddresses, elsewhere.DNSNames = nil, []string{"elsewhere.example"}
	for _, row := range []struct {
		name    string
		from    *x509.Certificate
		trusted bool
		version uint16
	}{
		{"self-signed", good, false, 0},
		{"expired", &expired, true, 0},
		{"another host", &elsewhere, true, 0},
		{"TLS 1.0", good, true, tls.VersionTLS10},
	} {
		t.Run(row.name, func(t *testing.T) {
			certificate, file := certify(t, row.from)
			config := &tls.Config{Certificates: []tls.Certificate{certificate}}
			if row.version != 0 {
				config.MinVersion, config.MaxVersion = row.version, row.version
			}
			var mu sync.Mutex
			var heard bool
			address := answering(t, func(c net.Conn) {
				secured := tls.Server(c, config)
				if n, err := secured.Read(make([]byte, 100)); err == nil && n > 0 {
					mu.Lock()
					heard = true
					mu.Unlock()
				}
			})
			var options []syncguard.Option
			if row.trusted {
				options = append(options, syncguard.WithTLSCAFile(file))
			}
			client, err := syncguard.Open("rediss://:hunter2@"+address+"/", append(options, syncguard.WithOperationTimeout(5*time.Second))...)
			must(t, err)
			defer client.Close()
			if _, err = client.TryLock(background, "k"); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if heard {
				t.Fatal("the password was sent")
			}
		})
	}
	certificate, file := certify(t, good)
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	must(t, err)
	keyFile := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o644))
	_, port := startRedisTCP(t, func(port int) []string {
		return []string{"--port", "0", "--tls-port", fmt.Sprint(port), "--tls-cert-file", file, "--tls-key-file", keyFile, "--tls-ca-cert-file", file,
			"--tls-auth-clients", "no"}
	})
	client := open(t, fmt.Sprintf("rediss://127.0.0.1:%d/", port), syncguard.WithTLSCAFile(file))
	must(t, lock(t, client, "k").Release(background))
}

// certify makes a certificate, and a file of roots with it.
func certify(t *testing.T, from *x509.Certificate) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	wanted := *from
	wanted.SerialNumber = big.NewInt(time.Now().UnixNano())
	wanted.Subject = pkix.Name{CommonName: "syncguard test"}
	der, err := x509.CreateCertificate(rand.Reader, &wanted, &wanted, &key.PublicKey, key)
	must(t, err)
	file := filepath.Join(t.TempDir(), "cert.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
