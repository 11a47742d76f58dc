import Foundation
import Glibc
import StreamClient
import TestSupport
import Testing

/// Refresh tokens that a server replaces, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct OAuth2DaemonTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  private func stream(_ name: String) -> String {
    """
    [streams.\(name)]
    start = "always"
    retry = { first = "10ms", max = "50ms" }
    [streams.\(name).http]
    url = "\(upstream.url("/guarded/\(key)"))"
    every = "5ms"
    oauth2 = { token_url = "\(upstream.url("/token/\(key)?rotate=1"))", client_id = "me", refresh_token = { credential = "r" } }

    """
  }

  @Test func aRefreshTokenThatTheServerReplacesOutlivesTwentyKills() async throws {
    let credentials = try TemporaryFolder(["r": "first\n"])
    let daemon = try RestartedDaemon(hasManager: false)
    for round in 1...20 {
      try await daemon.start(
        stream("s") + stream("t"), environment: ["CREDENTIALS_DIRECTORY=\(credentials.path)"])
      for name in ["s", "t"] { _ = try await daemon.events(1, of: name) }
      await daemon.kill()
      let granted = try upstream.granted(key)
      #expect(granted.requests == round && granted.reused == 0, "one token for both, and the stored one each time")
    }
    let files = try FileManager.default.contentsOfDirectory(atPath: daemon.state).filter { $0.hasPrefix("token-") }
    #expect(files.count == 1)
    var status = Glibc.stat()
    #expect(stat("\(daemon.state)/\(files[0])", &status) == 0 && status.st_mode & 0o777 == 0o600)
    // The secret is nowhere else: neither in the log nor in what a list of processes shows.
    let token =
      try String(contentsOfFile: "\(daemon.state)/\(files[0])", encoding: .utf8).split(separator: "\n").last ?? ""
    #expect(token.hasPrefix("r20.") && !daemon.log.contains(token) && !daemon.log.contains(key))
  }

  @Test func withoutAFolderAReplacedRefreshTokenIsAFailure() async throws {
    let credentials = try TemporaryFolder(["r": "first\n"])
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(
      stream("s"), state: "/proc/nowhere", environment: ["CREDENTIALS_DIRECTORY=\(credentials.path)"])
    try await daemon.eventually("it says so") {
      daemon.log.contains("the new one cannot be stored: open /proc/nowhere")
    }
    #expect(try upstream.granted(key).requests == 1)
    #expect(await daemon.stop() == 0)
  }
}
