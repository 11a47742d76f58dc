import CLinux
import Glibc
import TestSupport
import Testing

@testable import StreamRuntime

/// Addresses as texts, and connections to names.
@Suite(.timeLimit(.minutes(5))) struct ServerAddressTests {
  @Test(arguments: [
    ("unix:/run/s.sock", "unix:/run/s.sock"), ("/run/s.sock", "unix:/run/s.sock"),
    ("tcp:127.0.0.1:7878", "tcp:127.0.0.1:7878"), ("127.0.0.1:7878", "tcp:127.0.0.1:7878"),
    ("tcp:[0::1]:1", "tcp:[::1]:1"), ("[::1]:1", "tcp:[::1]:1"), ("tcp:localhost:1", "tcp:localhost:1"),
    ("streamd.example.org:7878", "tcp:streamd.example.org:7878"), ("host:1", "tcp:host:1"), ("unix:s", nil), ("s", nil),
    ("tcp:h", nil), ("h:0", nil), ("tcp:h:65536", nil), ("tcp:h:+1", nil), ("tcp::1", nil), (":1", nil),
    ("tcp:[::1%lo]:1", nil), ("tcp:a b:1", nil), ("tcp:u@h:1", nil), ("unix:/\u{7}", nil), ("::1:1", nil), ("", nil),
    ("udp:h:1", nil), ("tcp:/s", nil),
  ]) func anAddressHasOneForm(text: String, form: String?) {
    #expect(ServerAddress(text)?.description == form)
    #expect(ServerAddress(text) == form.flatMap { ServerAddress($0) })
    #expect(ServerAddress("/" + String(repeating: "x", count: 107)) == nil)
  }

  @Test func aNameIsLookedUp() throws {
    #expect(try InternetAddress.all(ofName: "127.0.0.1", port: 5).map(\.description) == ["127.0.0.1:5"])
    #expect(try InternetAddress.all(ofName: "localhost", port: 5).contains { $0.isLoopback })
    #expect(throws: SystemError.self) { try InternetAddress.all(ofName: String(repeating: "x", count: 64), port: 5) }
  }

  /// What a connector has found: the peer's address, or why not.
  private func connect(to addresses: [String]) async throws -> String {
    let loop = try EventLoop(name: "test")
    try loop.start()
    defer { loop.stop() }
    return await withCheckedContinuation { continuation in
      loop.execute {
        let found = addresses.compactMap { InternetAddress($0) }
        let keeper = Keeper()
        keeper.connector = ServerConnector(to: { found }, on: loop) { result in
          keeper.connector = nil
          switch result {
          case .success(let raw):
            continuation.resume(returning: TCPSocket.peerAddress(of: raw) ?? "nothing")
            Glibc.close(raw)
          case .failure(let failure): continuation.resume(returning: "\(failure)")
          }
        }
      }
    }
  }

  private final class Keeper: @unchecked Sendable { var connector: ServerConnector? }

  /// One address refuses, one does not answer.
  @Test func theFirstAddressThatAnswersIsUsed() async throws {
    let listener = uniqueAddress()
    let socket = try TCPSocket.listen(on: listener)
    let refused = uniqueAddress().description
    #expect(try await connect(to: [refused, listener.description]) == listener.description)
    let failure = try await connect(to: [refused, refused])
    #expect(failure.contains("refused"), "\(failure)")
    let silent = uniqueAddress()
    let (full, queue) = try fullListener(silent)
    #expect(try await connect(to: [silent.description, listener.description]) == listener.description)
    withExtendedLifetime((socket.raw, full.raw, queue.count)) {}
  }

  /// A listener whose queue is full: the kernel drops further connections, so that they hang.
  private func fullListener(_ address: InternetAddress) throws -> (OwnedSocket, [OwnedSocket]) {
    let listener = Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    let bound = address.withSocketAddress { bind(listener, $0, $1) }
    try #require(bound == 0 && listen(listener, 0) == 0)
    var queue: [OwnedSocket] = []
    for _ in 0..<4 { queue.append(OwnedSocket(raw: try TCPSocket.connect(to: address).release())) }
    return (OwnedSocket(raw: listener), queue)
  }

  private final class OwnedSocket {
    let raw: CInt
    init(raw: CInt) { self.raw = raw }
    deinit { close(raw) }
  }
}
