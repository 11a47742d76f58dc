import TaggedFields

/// The comparison of a stream's definition with that of the leader. Events of another definition are still events of
/// the stream, for all hosts: an operator has to see the difference. It begins when a host finds another definition in
/// the stream's last record, and asks the leader. The leader's answer has the leader's definition; so both know.
extension FleetShard {
  /// The time after which a host asks a leader with another definition again, or one that has not answered.
  static let comparisonTime: UInt64 = 10_000_000_000
  /// The number of hosts with another definition that a leader remembers for a stream.
  private static let rememberedHosts = 64

  /// Asks the leader for its definition if the last record has another one than this host.
  func compare(_ stream: SharedStream, at now: UInt64) -> [Action] {
    stream.compareAt = .max
    guard isOther(stream) else { return [] }
    stream.compareAt = now &+ Self.comparisonTime
    guard let leader = machine.leader else { return [] }
    let message = FleetMessage(
      kind: .compare, sender: host.bytes, stream: stream.name, bytes: Array(settings.hostName.utf8),
      definition: stream.definition.definition)
    return [.compare(RecordFields.bytes(of: message), stream: stream.name, leader: leader)]
  }

  /// Whether the leader has another definition, as far as this host knows.
  private func isOther(_ stream: SharedStream) -> Bool {
    guard machine.leader != host, let head = heads[stream.name], head.definition != 0,
      head.definition != stream.definition.definition
    else { return false }
    // The last record may be of a former leader.
    return stream.leaderDefinition?.leader != machine.leader
      || stream.leaderDefinition?.definition != stream.definition.definition
  }

  /// The leader has answered.
  /// - Parameter answer: the bytes of its definition.
  func compared(_ stream: SharedStream, with leader: HostID, _ answer: [UInt8]) {
    guard answer.count == 8 else { return }
    stream.leaderDefinition = (leader, answer.reduce(0) { $0 << 8 | UInt64($1) })
  }

  /// Another host compares its definition with that of this one, which leads.
  /// - Returns: the answer.
  func learn(_ message: FleetMessage, of stream: SharedStream, at now: UInt64) -> [UInt8] {
    let own = stream.definition.definition
    stream.others = stream.others.filter { $0.key != message.sender && $0.value.until > now }
    if message.definition != own, stream.others.count < Self.rememberedHosts {
      let name = String(decoding: message.bytes.prefix(256), as: UTF8.self)
      stream.others[message.sender] = SharedStream.Other(
        name: FleetMachine.shown(name), until: now &+ 3 * Self.comparisonTime)
    }
    return (0..<8).map { UInt8(truncatingIfNeeded: own >> (56 - 8 * $0)) }
  }

  /// The hosts that have another definition than this one: for a leader all that have asked, for others the leader.
  /// - Parameter nameOfLeader: gives the leader a name.
  func otherHosts(_ stream: SharedStream, at now: UInt64, nameOfLeader: (HostID) -> String) -> [String] {
    guard isLeading else { return isOther(stream) ? machine.leader.map { [nameOfLeader($0)] } ?? [] : [] }
    return stream.others.values.filter { $0.until > now }.map(\.name).sorted()
  }
}
