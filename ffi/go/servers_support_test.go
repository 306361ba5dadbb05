package syncguard_test

import (
	"bytes"
	"fmt"
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

// patience is how long a test waits for what must happen: far longer than it takes, for machines that are busy.
const patience = 30 * time.Second

var scratch string

func TestMain(m *testing.M) {
	if stage := os.Getenv("SYNCGUARD_GO_STAGE"); stage != "" {
		stages[stage](os.Args[1:])
		os.Exit(0)
	}
	// SYNCGUARD_TEST_DIR is removed by whoever set it.
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
	children []*exec.Cmd
	startOne sync.Mutex
)

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
		children = append(children, cmd)
	}
	return err
}

func stopServers() {
	for _, cmd := range children {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

type redisServer struct {
	dir string
	cmd *exec.Cmd
}

func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "r-")
	must(t, err)
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
	if err := start(s.cmd); err != nil {
		t.Fatalf("redis-server cannot be started, and the tests need it: %v", err)
	}
	eventually(t, "redis-server answers", func() bool {
		out, err := exec.Command("redis-cli", "-s", s.socket(), "PING").CombinedOutput()
		return err == nil && (bytes.Contains(out, []byte("PONG")) || bytes.Contains(out, []byte("NOAUTH")))
	})
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

func (s *redisServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

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

// asServerUser runs as postgres when the test is root, whom the server refuses.
func asServerUser(program string, args ...string) *exec.Cmd {
	if os.Getuid() == 0 {
		args = append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "QUIT", program}, args...)
		program = "setpriv"
	}
	return exec.Command(program, args...)
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func startPostgres(t testing.TB) *postgresServer {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "p-")
	must(t, err)
	if os.Getuid() == 0 {
		if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil {
			t.Fatalf("chown: %v\n%s", err, out)
		}
	}
	data := filepath.Join(dir, "data")
	init := asServerUser(pgProgram(t, "initdb"), "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8", "-D", data)
	init.Dir = dir
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	var log bytes.Buffer
	for try := 0; try < 5; try++ {
		s := &postgresServer{dir: dir, port: freePort(t)}
		s.cmd = asServerUser(pgProgram(t, "postgres"), "-D", data, "-p", strconv.Itoa(s.port), "-k", dir, "-c", "listen_addresses=127.0.0.1",
			"-c", "fsync=off", "-c", "max_connections=200")
		s.cmd.Dir = dir
		s.cmd.Stderr = &log
		if err := start(s.cmd); err != nil {
			t.Fatalf("postgres cannot be started: %v", err)
		}
		end := time.Now().Add(patience)
		for time.Now().Before(end) {
			if exec.Command("psql", s.url(), "-qAtc", "select 1").Run() == nil {
				return s
			}
			if s.cmd.ProcessState != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
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
