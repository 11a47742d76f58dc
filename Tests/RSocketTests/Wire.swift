import RSocket

/// Bytes as a specification prints them: hexadecimal digits in any grouping.
func hex(_ text: String) -> [UInt8] {
  let digits = text.filter { !$0.isWhitespace }
  return stride(from: 0, to: digits.count, by: 2).map { offset in
    let start = digits.index(digits.startIndex, offsetBy: offset)
    return UInt8(digits[start..<digits.index(start, offsetBy: 2)], radix: 16) ?? 0
  }
}

extension Frame {
  var encoded: [UInt8] {
    var bytes: [UInt8] = []
    encode(into: &bytes)
    return bytes
  }

  /// Decodes consecutive frames, each with its length.
  static func decodeAll(_ bytes: [UInt8]) throws -> [Frame?] {
    var rest = bytes[...]
    var frames: [Frame?] = []
    while rest.count >= 3 {
      let length = rest.prefix(3).reduce(0) { $0 << 8 | Int($1) }
      frames.append(try [UInt8](rest.dropFirst(3).prefix(length)).withUnsafeBytes { try decode($0) })
      rest = rest.dropFirst(3 + length)
    }
    return frames
  }
}

/// One machine under test. A class, so that expectations can pass input to it in place.
final class Side {
  typealias Event = ConnectionMachine.Event

  var machine: ConnectionMachine

  init(_ machine: ConnectionMachine) { self.machine = machine }

  /// A server whose SETUP phase is over.
  static func openServer(_ setup: Setup = Setup(), limits: ConnectionLimits = ConnectionLimits()) -> Side {
    let server = Side(ConnectionMachine(acceptingWith: limits))
    _ = server.receive(.setup(setup))
    return server
  }

  /// A client whose SETUP was sent.
  static func openClient(_ setup: Setup = Setup(), limits: ConnectionLimits = ConnectionLimits()) -> Side {
    let client = Side(ConnectionMachine(connectingWith: setup, limits: limits))
    _ = client.machine.takeOutput()
    return client
  }

  /// The events of `bytes`, fed in chunks.
  func receive(_ bytes: [UInt8], chunkByteCount: Int = .max) -> [Event] {
    var events: [Event] = []
    var offset = 0
    while offset < bytes.count {
      let end = offset + min(chunkByteCount, bytes.count - offset)
      bytes[offset..<end].withUnsafeBytes { machine.receive($0, into: &events) }
      offset = end
    }
    return events
  }

  func receive(_ frames: Frame...) -> [Event] { receive(frames.flatMap(\.encoded)) }

  func take() -> [UInt8] { machine.takeOutput() }

  func takeFrames() throws -> [Frame?] { try Frame.decodeAll(take()) }

  func request(
    _ kind: RequestKind, initialRequest: UInt32 = Credit.unlimited, _ payload: Payload = Payload(),
    isComplete: Bool = false
  ) -> StreamID? {
    machine.request(kind, initialRequest: initialRequest, payload, isComplete: isComplete)
  }
}

extension Payload {
  init(_ text: String, metadata: [UInt8]? = nil) { self.init(metadata: metadata, data: [UInt8](text.utf8)) }
}
