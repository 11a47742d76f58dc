import Glibc
import RSocket
import Reactive
import StreamClient
import StreamRuntime
import TestSupport

/// Events in order, for which a test waits.
package final class Recorder<Value: Sendable>: Sendable {
  private let stream: AsyncStream<Value>
  private let continuation: AsyncStream<Value>.Continuation

  package init() { (stream, continuation) = AsyncStream.makeStream() }

  package func record(_ value: Value) { continuation.yield(value) }

  /// The next event, once it has arrived; nil when the test's time is over.
  package func next() async -> Value? {
    var iterator = stream.makeAsyncIterator()
    return await iterator.next()
  }
}

/// The server's end of one connection. Everything but `id` belongs to the server's loop.
package final class Peer: EventLoop.Handler, @unchecked Sendable {
  package let id: Int
  package let loop: EventLoop
  package var machine = ConnectionMachine(acceptingWith: ConnectionLimits())
  /// While false, the peer does not read.
  package var reads: Bool {
    didSet { watch() }
  }
  private let descriptor: OwnedDescriptor
  private let script: @Sendable (Peer, ServerEvent) -> Void
  private let raw: Bool
  private var registration: EventLoop.Registration?
  private var unwritten: [UInt8] = []

  package init(
    _ id: Int, _ descriptor: consuming OwnedDescriptor, _ server: borrowing ScriptedServer.Terms, on loop: EventLoop
  ) {
    self.id = id
    self.descriptor = descriptor
    self.loop = loop
    script = server.script
    raw = server.raw
    reads = server.reads
    registration = try? loop.register(self.descriptor.raw, for: [], handler: self)
    watch()
  }

  private func watch() {
    guard let registration else { return }
    var readiness: EventLoop.Readiness = reads ? .readable : []
    if !unwritten.isEmpty { readiness.insert(.writable) }
    loop.update(registration, for: readiness)
  }

  /// - Parameters:
  ///   - leftOut: the number in the metadata after id and time.
  ///   - gap: the number after that.
  ///   - kind: the last byte.
  package func send(
    _ text: String, on id: StreamID, number: UInt64 = 0, leftOut: UInt64? = nil, gap: UInt64? = nil, kind: UInt8? = nil,
    isComplete: Bool = false
  ) {
    send(Array(text.utf8), on: id, number: number, leftOut: leftOut, gap: gap, kind: kind, isComplete: isComplete)
  }

  package func send(
    _ data: [UInt8], on id: StreamID, number: UInt64 = 0, leftOut: UInt64? = nil, gap: UInt64? = nil,
    kind: UInt8? = nil, isComplete: Bool = false
  ) {
    let numbers: [UInt64] = [number, 1_000_000 + number, leftOut, gap].compactMap(\.self)
    var metadata = numbers.flatMap { value in (0..<8).map { UInt8(value >> (56 - 8 * $0) & 0xff) } }
    if let kind { metadata.append(kind) }
    machine.sendPayload(id, Payload(metadata: metadata, data: data), isComplete: isComplete)
  }

  package func flush() {
    if machine.hasOutput { write(machine.takeOutput()) }
  }

  package func write(_ bytes: [UInt8]) {
    unwritten += bytes
    while !unwritten.isEmpty {
      let count = Glibc.send(descriptor.raw, unwritten, unwritten.count, CInt(MSG_NOSIGNAL))
      guard count > 0 else { break }
      unwritten.removeFirst(count)
    }
    watch()
  }

  package func close() {
    flush()
    if let registration { loop.unregister(registration) }
    registration = nil
    shutdown(descriptor.raw, CInt(SHUT_RDWR))
  }

  package func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { write([]) }
    guard readiness.contains(.readable), reads || readiness.contains(.writable) else { return }
    var buffer = [UInt8](repeating: 0, count: 65536)
    let count = read(descriptor.raw, &buffer, buffer.count)
    if count <= 0 {
      guard count == 0 || errno != EAGAIN else { return }
      close()
      return script(self, .gone)
    }
    if raw { return script(self, .bytes(Array(buffer.prefix(count)))) }
    var events: [ConnectionMachine.Event] = []
    buffer.withUnsafeBytes { machine.receive(UnsafeRawBufferPointer(rebasing: $0[..<count]), into: &events) }
    for event in events {
      switch event {
      case .request(let id, let kind, let initialRequest, let payload, _):
        let name = try? machine.metadataFormat.route(in: payload.metadata)
        script(self, .request(id, kind, initialRequest, name ?? "?", String(decoding: payload.data, as: UTF8.self)))
      default: script(self, .other(event))
      }
    }
    flush()
  }
}

/// The input of a test's script.
package enum ServerEvent: Equatable, Sendable {
  case request(StreamID, RequestKind, UInt32, String, String)
  case other(ConnectionMachine.Event)
  /// What a raw server has received.
  case bytes([UInt8])
  /// The client is gone.
  case gone
}

/// Accepts connections and runs the test's script on each, on its own loop.
package final class ScriptedServer: Sendable {
  package struct Terms: Sendable {
    package var script: @Sendable (Peer, ServerEvent) -> Void
    package var raw = false
    package var reads = true
  }

  package let path: String
  package let events = Recorder<ServerEvent>()
  package let loop: EventLoop
  private let peers = Locked<[Peer]>([])

  private init(path: String) throws {
    self.path = path
    loop = try EventLoop(name: "scripted server")
  }

  /// Runs `body` against a server. Every event is recorded after the script has seen it, but for SETUP, and for requests
  /// for `$streams`.
  package static func run<R>(
    raw: Bool = false, reads: Bool = true, script: @escaping @Sendable (Peer, ServerEvent) -> Void = { _, _ in },
    body: (ScriptedServer) async throws -> R
  ) async throws -> R {
    let folder = try TemporaryFolder()
    let server = try ScriptedServer(path: folder.path("s"))
    let descriptor = try UnixSocket.listen(at: server.path, mode: 0o600).release()
    let catalogueRequests = Locked<[Int: Set<StreamID>]>([:])
    let recordingScript: @Sendable (Peer, ServerEvent) -> Void = { [events = server.events] peer, event in
      script(peer, event)
      switch event {
      case .other(.setup): return
      // streamctl reads the catalogue when no event arrives for a while, and again later, which depends on the machine.
      case .request(let id, .response, _, "$streams", _):
        return catalogueRequests.withLock { _ = $0[peer.id, default: []].insert(id) }
      case .other(.cancel(let id)) where catalogueRequests.withLock({ $0[peer.id]?.contains(id) == true }): return
      default: events.record(event)
      }
    }
    let terms = Terms(script: recordingScript, raw: raw, reads: reads)
    // The loop may run this after the end of the test.
    server.loop.execute { [weak server] in
      guard let server else { return }
      let listener = Listener(
        OwnedDescriptor(descriptor), on: server.loop,
        accepted: { [weak server] socket in
          guard let server else { return }
          let number = server.peers.withLock { $0.count }
          let peer = Peer(number, socket, terms, on: server.loop)
          server.peers.withLock { $0.append(peer) }
        }, paused: { _ in })
      listener.start()
    }
    try server.loop.start()
    defer { server.loop.stop() }
    return try await body(server)
  }

  package func next() async -> ServerEvent? { await events.next() }

  /// Runs `action` on the loop for the connection with this number, counted from 0, and writes its output.
  package func act(_ number: Int = 0, _ action: @escaping @Sendable (Peer) -> Void) {
    loop.execute { [self] in
      guard let peer = peers.withLock({ $0.indices.contains(number) ? $0[number] : nil }) else { return }
      action(peer)
      peer.flush()
    }
  }

  package var connectionCount: Int { peers.withLock { $0.count } }
}
