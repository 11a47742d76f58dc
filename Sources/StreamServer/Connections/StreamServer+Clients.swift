import Dispatch
import Glibc
import ReplayLog
import StreamProtocol
import StreamRuntime

// The list of clients and the commands, for root and the daemon's user.

extension StreamServer {
  /// The maximum number of connections in `$clients`: the rendering costs about 20 µs for each.
  private static let shownClients = 1000
  /// The maximum time that a loop has to list its clients.
  private static let listWait = DispatchTimeInterval.seconds(1)

  /// The clients. Waits for the loops, and must not be called on one of them.
  func clients() -> ClientsSnapshot {
    let found = Locked<[ClientsSnapshot.Client]>([])
    let group = DispatchGroup()
    for worker in workers {
      group.enter()
      worker.listClients { clients in
        found.withLock { $0 += clients }
        group.leave()
      }
    }
    _ = group.wait(timeout: .now() + Self.listWait)
    let all = found.withLock { $0 }
    // The number of an earlier client is lower.
    var shown = all.sorted { $0.lag != $1.lag ? $0.lag > $1.lag : $0.id < $1.id }.prefix(Self.shownClients)
    shown.sort { $0.id < $1.id }
    for index in shown.indices { shown[index].command = shown[index].process.flatMap(Self.command) }
    let others = counts.open.load(ordering: .relaxed) - shown.count
    return ClientsSnapshot(clients: Array(shown), others: others > 0 ? others : nil)
  }

  /// The name of a process; nil if it has ended, or belongs to another namespace.
  private static func command(of process: Int32) -> String? {
    guard process > 0, let file = unsafe fopen("/proc/\(process)/comm", "re") else { return nil }
    defer { unsafe fclose(file) }
    var room = [CChar](repeating: 0, count: 64)  // the kernel keeps 15 bytes
    guard let line = unsafe fgets(&room, CInt(room.count), file) else { return nil }
    return unsafe String(cString: line).split(separator: "\n").first.map(String.init)
  }

  /// Performs a command. Thread-safe.
  /// - Parameter completed: called once on any thread; nil: the command has taken effect.
  func perform(
    _ command: ControlCommand, for client: ClientIdentity, completed: @escaping @Sendable (RequestFailure?) -> Void
  ) {
    switch command {
    case .kick(let number):
      let left = Countdown(workers.count)
      let isFound = Locked(false)
      for worker in workers {
        worker.loop.execute {
          if worker.kick(number, by: client) { isFound.withLock { $0 = true } }
          guard left.isLast() else { return }
          completed(isFound.withLock { $0 } ? nil : .init(.noEffect, "no client \(number)"))
        }
      }
    case .refresh(let name):
      guard let stream = streams[name], stream.rendering == nil else {
        return completed(.noStream(name))
      }
      let status = stream.status
      if let fleet = status.fleet, !fleet.isLeading {
        let host = fleet.leader.map { "host \($0)" } ?? "no host"
        return completed(.init(.noEffect, "\"\(name)\" is not refreshed: \(host) asks its upstream, for all hosts"))
      }
      guard let refresh = status.refresh else {
        return completed(.init(.noEffect, "\"\(name)\" is not refreshed: its source has no upstream"))
      }
      refresh { reason in completed(reason.map { .init(.noEffect, "\"\(name)\" is not refreshed: \($0)") }) }
    // The connection has done it.
    case .make, .forget: completed(nil)
    }
  }
}

extension Worker {
  /// The number of connections and requests that one turn lists: each costs about a microsecond.
  private static let listedPerTurn = 256
  /// The maximum number of subscriptions of a client in `$clients`, and of streams that it publishes to. With these the
  /// event fits into its stream, however long names are.
  fileprivate static let shownPerClient = 8

  /// Lists the clients of this loop over several turns. From any thread.
  /// - Parameter completed: called on the loop.
  fileprivate func listClients(completed: @escaping @Sendable ([ClientsSnapshot.Client]) -> Void) {
    loop.execute { [self] in list(allConnections[...], [], completed) }
  }

  private func list(
    _ rest: ArraySlice<Connection>, _ found: [ClientsSnapshot.Client],
    _ completed: @escaping @Sendable ([ClientsSnapshot.Client]) -> Void
  ) {
    loop.assertOnLoop()
    var ends: [ObjectIdentifier: UInt64] = [:]
    var found = found
    var others = rest
    var count = 0
    while count < Self.listedPerTurn, let connection = others.popFirst() {
      guard connection.phase == .open else { continue }
      found.append(entry(of: connection, &ends))
      count += 1 + connection.requestCount
    }
    guard !others.isEmpty else { return completed(found) }
    let next = Continuation(rest: others, found: found)
    loop.execute { [self] in list(next.rest, next.found, completed) }
  }

  /// The arguments of the next turn, on the same loop.
  private struct Continuation: @unchecked Sendable {
    let rest: ArraySlice<Connection>
    let found: [ClientsSnapshot.Client]
  }

  /// - Parameter ends: the ends of streams' logs, as far as they are known.
  private func entry(of connection: Connection, _ ends: inout [ObjectIdentifier: UInt64]) -> ClientsSnapshot.Client {
    let identity = connection.identity
    var client = ClientsSnapshot.Client(
      id: identity.number, protocol: connection.speaker?.protocolName ?? "rsocket", bytesOut: connection.sentByteCount)
    (client.user, client.process) = (identity.credentials?.user, identity.credentials?.process)
    client.token = identity.token?.name
    if identity.credentials == nil { client.address = TCPSocket.peerAddress(of: connection.socket.raw) }
    let age = UInt32(truncatingIfNeeded: loop.now / 1_000_000_000) &- connection.beganAt
    client.since = EventLoop.wallClock() - UInt64(age) * 1_000_000
    let subscriptions = connection.allSubscriptions.map { subscription in
      let stream = subscription.lane.stream
      let end = ends[ObjectIdentifier(stream)] ?? stream.log.read { storage, _ in storage.endPosition }
      ends[ObjectIdentifier(stream)] = end
      return (subscription, lag: end - min(end, subscription.lane.position(of: subscription)))
    }
    let shown = subscriptions.sorted { $0.lag > $1.lag }.prefix(Self.shownPerClient).map { subscription, lag in
      ClientsSnapshot.Subscription(
        stream: subscription.lane.stream.name, credit: subscription.machine.demand.max.map { UInt64($0) }, lag: lag,
        map: subscription.machine.format.isMap ? true : nil)
    }
    let published = connection.speaker?.publishedStreams ?? []
    client.lag = subscriptions.reduce(0) { $0 &+ $1.lag }
    if !shown.isEmpty { client.subscriptions = shown.sorted { $0.stream < $1.stream } }
    if !published.isEmpty { client.publishes = Array(published.sorted().prefix(Self.shownPerClient)) }
    let more = subscriptions.count - shown.count + max(0, published.count - Self.shownPerClient)
    if more > 0 { client.more = more }
    return client
  }

  /// Ends a connection. On the loop.
  /// - Returns: false if the connection is not on this loop.
  fileprivate func kick(_ number: UInt64, by client: ClientIdentity) -> Bool {
    loop.assertOnLoop()
    guard let connection = allConnections.first(where: { $0.identity.number == number && $0.phase == .open }) else {
      return false
    }
    connection.drop("kicked by \(client)")
    connection.stop(.init(.kicked, "an operator has ended this connection"))
    return true
  }
}
