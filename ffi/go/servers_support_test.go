package syncguard_test

// Starts the servers that the tests use.

import (
	"bytes"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testLimit is how long a test waits for what must happen: far longer than it takes, for machines that are busy.
const testLimit = 30 * time.Second

var scratch string

func TestMain(m *testing.M) {
	if stage := os.Getenv("SYNCGUARD_GO_STAGE"); stage != "" {
		stages[stage](os.Args[1:])
		os.Exit(0)
	}
	// The process that set SYNCGUARD_TEST_DIR removes it.
	dir, err := os.MkdirTemp(os.Getenv("SYNCGUARD_TEST_DIR"), "sg-go-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	_ = os.Chmod(dir, 0o755)
	code := m.Run()
	stopServers()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// A child's death signal comes when the thread that started it ends; this one never does.
var (
	starting = make(chan *exec.Cmd)
	started  = make(chan error)
	starter  sync.Once
	children sync.Map
	startOne sync.Mutex
)

// start starts a child that ends with this process. Only ended may wait for it.
func start(cmd *exec.Cmd) error {
	startOne.Lock()
	defer startOne.Unlock()
	starter.Do(func() {
		go func() {
			runtime.LockOSThread()
			for cmd := range starting {
				started <- cmd.Start()
			}
		}()
	})
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	starting <- cmd
	err := <-started
	if err == nil {
		over := make(chan struct{})
		children.Store(cmd, over)
		go func() {
			_ = cmd.Wait()
			close(over)
		}()
	}
	return err
}

// ended is closed when the child has ended; its ProcessState tells how.
func ended(cmd *exec.Cmd) chan struct{} {
	over, _ := children.Load(cmd)
	return over.(chan struct{})
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	<-ended(cmd)
}

func stopServers() {
	children.Range(func(cmd, _ any) bool {
		kill(cmd.(*exec.Cmd))
		return true
	})
}

type redisServer struct {
	dir string
	cmd *exec.Cmd
}

func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "r-")
	must(t, err)
	return startRedisIn(t, dir, nil, args...)
}

// startRedisTCP starts a server on a port of its own, which another program may take before it does.
func startRedisTCP(t testing.TB, args func(port int) []string) (*redisServer, int) {
	t.Helper()
	for try := 0; ; try++ {
		port := freePort(t)
		// The bus of a cluster is 10000 above.
		if port > 55000 {
			port -= 25000
		}
		dir, err := os.MkdirTemp(scratch, "r-")
		must(t, err)
		// A server that cannot have its port ends before it has made its socket.
		s := redisCommand(t, dir, nil, append([]string{"--port", strconv.Itoa(port)}, args(port)...)...)
		if err := start(s.cmd); err != nil {
			t.Fatalf("redis-server cannot be started, and the tests need it: %v", err)
		}
		if s.answers(t) {
			return s, port
		}
		if try == 5 {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("redis-server does not start: %s", log)
		}
	}
}

func startRedisIn(t testing.TB, dir string, env []string, args ...string) *redisServer {
	t.Helper()
	s := redisCommand(t, dir, env, args...)
	if err := start(s.cmd); err != nil {
		t.Fatalf("redis-server cannot be started, and the tests need it: %v", err)
	}
	if !s.answers(t) {
		t.Fatal("redis-server does not start")
	}
	return s
}

// answers waits until it does; false if it ended.
func (s *redisServer) answers(t testing.TB) (up bool) {
	t.Helper()
	eventually(t, "redis-server answers", func() bool {
		select {
		case <-ended(s.cmd):
			return true
		default:
		}
		out, err := exec.Command("redis-cli", "-s", s.socket(), "PING").CombinedOutput()
		up = err == nil && (bytes.Contains(out, []byte("PONG")) || bytes.Contains(out, []byte("NOAUTH")) || bytes.Contains(out, []byte("LOADING")))
		return up
	})
	return up
}

func redisCommand(t testing.TB, dir string, env []string, args ...string) *redisServer {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	defer log.Close()
	s := &redisServer{dir: dir}
	program := os.Getenv("SYNCGUARD_REDIS_SERVER")
	if program == "" {
		program = "redis-server"
	}
	s.cmd = exec.Command(program, append([]string{"--port", "0", "--unixsocket", s.socket(), "--save", "", "--dir", dir}, args...)...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, log, log
	s.cmd.Env = append(os.Environ(), env...)
	return s
}

func (s *redisServer) socket() string { return filepath.Join(s.dir, "s") }

func (s *redisServer) url() string { return "redis+unix://" + s.socket() }

func (s *redisServer) cli(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("redis-cli", append([]string{"-s", s.socket()}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *redisServer) stop() { kill(s.cmd) }

type postgresServer struct {
	dir  string
	port int
	cmd  *exec.Cmd
}

func pgProgram(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv("PG_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	for v := 18; v >= 13; v-- {
		path := fmt.Sprintf("/usr/lib/postgresql/%d/bin/%s", v, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatal("no Postgres server, and the tests need it; set PG_BIN")
	return ""
}

// asServerUser runs as postgres when the test is root: the server refuses root.
func asServerUser(program string, args ...string) *exec.Cmd {
	if os.Getuid() == 0 {
		args = append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "QUIT", program}, args...)
		program = "setpriv"
	}
	return exec.Command(program, args...)
}

// freePort is one below those that the kernel gives to clients: while a server is down, no connection can take its port.
func freePort(t testing.TB) int {
	t.Helper()
	first := 32768
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		fmt.Sscan(string(text), &first)
	}
	if first < 3000 {
		first = 3000
	}
	for i := 0; i < 1000; i++ {
		port := 2000 + portRandom.Intn(first-2000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// Seeded: Go before 1.20 would draw the same ports in every process.
var portRandom = rand.New(rand.NewSource(time.Now().UnixNano() ^ int64(os.Getpid())<<32))

// serverDir is a directory of the server's user.
func serverDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "p-")
	must(t, err)
	if os.Getuid() == 0 {
		if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil {
			t.Fatalf("chown: %v\n%s", err, out)
		}
	}
	return dir
}

func startPostgres(t testing.TB, env ...string) *postgresServer {
	t.Helper()
	dir := serverDir(t)
	data := filepath.Join(dir, "data")
	init := asServerUser(pgProgram(t, "initdb"), "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8", "-D", data)
	init.Dir = dir
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	return adoptPostgres(t, dir, env)
}

// standby is a server that follows this one.
func (s *postgresServer) standby(t testing.TB) *postgresServer {
	t.Helper()
	dir := serverDir(t)
	copy := asServerUser(pgProgram(t, "pg_basebackup"), "-U", "postgres", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-R", "-c", "fast",
		"--no-sync", "-D", filepath.Join(dir, "data"))
	copy.Dir = dir
	if out, err := copy.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	return adoptPostgres(t, dir, nil)
}

// adoptPostgres starts a server on a directory that was made for it.
func adoptPostgres(t testing.TB, dir string, env []string) *postgresServer {
	t.Helper()
	data := filepath.Join(dir, "data")
	var log bytes.Buffer
	for try := 0; try < 5; try++ {
		s := &postgresServer{dir: dir, port: freePort(t)}
		s.cmd = asServerUser(pgProgram(t, "postgres"), "-D", data, "-p", strconv.Itoa(s.port), "-k", dir, "-c", "listen_addresses=127.0.0.1",
			"-c", "fsync=off", "-c", "max_connections=200")
		s.cmd.Dir = dir
		s.cmd.Stderr = &log
		s.cmd.Env = append(os.Environ(), env...)
		if err := start(s.cmd); err != nil {
			t.Fatalf("postgres cannot be started: %v", err)
		}
		up := false
		eventually(t, "postgres answers or ends", func() bool {
			select {
			case <-ended(s.cmd):
				return true
			default:
			}
			// By its socket: another one may have the port.
			up = exec.Command("psql", fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d", dir, s.port), "-qAtc", "select 1").Run() == nil
			return up
		})
		if up {
			return s
		}
	}
	t.Fatalf("postgres does not start: %s", log.String())
	return nil
}

func (s *postgresServer) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

func (s *postgresServer) sql(t testing.TB, text string) string {
	t.Helper()
	out, err := exec.Command("psql", s.url(), "-v", "ON_ERROR_STOP=1", "-qAtc", text).CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// One of each for all tests of the run; they use keys of their own.
var (
	sharedRedisOnce, sharedPostgresOnce sync.Once
	sharedRedis                         *redisServer
	sharedPostgres                      *postgresServer
)

func redis(t testing.TB) *redisServer {
	t.Helper()
	sharedRedisOnce.Do(func() { sharedRedis = startRedis(t) })
	if sharedRedis == nil {
		t.Fatal("there is no redis-server")
	}
	return sharedRedis
}

func postgres(t testing.TB) *postgresServer {
	t.Helper()
	sharedPostgresOnce.Do(func() { sharedPostgres = startPostgres(t) })
	if sharedPostgres == nil {
		t.Fatal("there is no Postgres server")
	}
	return sharedPostgres
}

func (s *redisServer) pause(t testing.TB) {
	t.Helper()
	must(t, s.cmd.Process.Signal(syscall.SIGSTOP))
}

func (s *redisServer) resume(t testing.TB) {
	t.Helper()
	must(t, s.cmd.Process.Signal(syscall.SIGCONT))
}
