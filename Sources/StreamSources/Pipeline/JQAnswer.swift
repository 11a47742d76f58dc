import Events

/// The result of one event in the process that runs programs.
struct JQAnswer: Equatable {
  /// One resulting event.
  struct Output: Equatable {
    /// nil: the input event, byte for byte.
    var event: [UInt8]?
    /// The value by which consecutive events are compared; nil: differs from every other value.
    var distinctBy: [UInt8]?
    /// The key in the stream's state; nil: it has none.
    var key: EventKey?
  }

  var outputs: [Output] = []
  /// The error message of the last program that failed.
  var failure: String?
}

// Between the two processes, which run the same executable, each message is its length (u32) and its bytes. The daemon
// sends the names of variables, a line for each, the programs, empty for none, and then events; each after the values of
// the variables, a line for each, if there are any. The child sends one answer for the programs, whose output is the reason
// if it could not drop its privileges, and one answer for each event.

extension HelperMessageReader {
  /// Reads answers, of which the longest possible one is shorter than the limit.
  init() { self.init(limit: 4 * JQProgram.bytesLimit) }
}

extension ArraySlice<UInt8> {
  /// Removes a length and as many bytes from the front.
  fileprivate mutating func takeMessage() -> [UInt8]? {
    guard let length = takeLength(), length <= count else { return nil }
    defer { removeFirst(length) }
    return [UInt8](prefix(length))
  }
}

extension JQAnswer {
  private static let holdsFailure: UInt8 = 1
  private static let holdsEvent: UInt8 = 1
  private static let holdsDistinctBy: UInt8 = 2
  private static let holdsKey: UInt8 = 4
  private static let isTombstone: UInt8 = 8

  /// The message without its length.
  var encoded: [UInt8] {
    var bytes: [UInt8] = [failure == nil ? 0 : Self.holdsFailure]
    if let failure { bytes.appendMessage(failure.utf8) }
    for output in outputs {
      var flags: UInt8 = output.event == nil ? 0 : Self.holdsEvent
      if output.distinctBy != nil { flags |= Self.holdsDistinctBy }
      if let key = output.key { flags |= Self.holdsKey | (key.isTombstone ? Self.isTombstone : 0) }
      bytes.append(flags)
      for field in [output.event, output.distinctBy, output.key?.bytes] {
        if let field { bytes.appendMessage(field) }
      }
    }
    return bytes
  }

  /// - Parameter message: a result of `encoded`; anything else returns nil.
  init?(_ message: ArraySlice<UInt8>) {
    var rest = message
    guard let head = rest.popFirst() else { return nil }
    if head & Self.holdsFailure != 0 {
      guard let text = rest.takeMessage() else { return nil }
      failure = String(decoding: text, as: UTF8.self)
    }
    while let flags = rest.popFirst() {
      var output = Output()
      if flags & Self.holdsEvent != 0 {
        guard let event = rest.takeMessage() else { return nil }
        output.event = event
      }
      if flags & Self.holdsDistinctBy != 0 {
        guard let result = rest.takeMessage() else { return nil }
        output.distinctBy = result
      }
      if flags & Self.holdsKey != 0 {
        guard let bytes = rest.takeMessage(), let key = EventKey(bytes, isTombstone: flags & Self.isTombstone != 0)
        else { return nil }
        output.key = key
      }
      outputs.append(output)
    }
  }
}
