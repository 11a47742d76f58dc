// An input is three lines: a pattern, the name of a stream, and the options of a request; then a byte whose lowest two bits
// say what the metadata of a payload have, and these metadata.

import RSocket
import StreamProtocol

@testable import StreamServer

/// Reads one input; a broken invariant traps.
func fuzzPatterns(_ input: UnsafeRawBufferPointer) {
  let parts = [UInt8](input).split(separator: UInt8(ascii: "\n"), maxSplits: 3, omittingEmptySubsequences: false)
  guard parts.count == 4 else { return }
  checkPattern(String(decoding: parts[0], as: UTF8.self), String(decoding: parts[1], as: UTF8.self))
  let (flags, metadata) = (parts[3].first ?? 0, Array(parts[3].dropFirst()))
  checkMetadata(metadata, isFiltered: flags & 1 != 0, hasKind: flags & 2 != 0)
  checkOptions(Array(parts[2]), metadata)
}

/// A pattern fits the names that a simple comparison finds.
private func checkPattern(_ text: String, _ name: String) {
  guard let pattern = NamePattern(text) else {
    return precondition(!text.utf8.contains(UInt8(ascii: "*")) || text.utf8.count > NamePattern.byteLimit, text)
  }
  let fits = pattern.fits(name)
  let isNamed = !name.isEmpty && name.utf8.first != UInt8(ascii: "$")
  precondition(fits == (isNamed && Array(text.utf8).fit(Array(name.utf8))), "\(text) and \(name): \(fits)")
  precondition(!fits || name.utf8.starts(with: pattern.prefix), "\(name) has another beginning than \(text)")
}

extension [UInt8] {
  /// Whether these bytes, in which each star stands for any others, are those of a name.
  fileprivate func fit(_ name: [UInt8]) -> Bool {
    // For each number of bytes of the name, whether the pattern so far fits these.
    var fits = [true] + [Bool](repeating: false, count: name.count)
    for byte in self {
      var next = [Bool](repeating: false, count: fits.count)
      for count in fits.indices {
        if byte == UInt8(ascii: "*") {
          next[count] = fits[count] || count > 0 && next[count - 1]
        } else {
          next[count] = count > 0 && fits[count - 1] && name[count - 1] == byte
        }
      }
      fits = next
    }
    return fits[name.count]
  }
}

/// A client reads what a server has written, and refuses metadata of another length.
private func checkMetadata(_ metadata: [UInt8], isFiltered: Bool, hasKind: Bool) {
  let stamp = EventStamp(metadata, isFiltered: isFiltered, hasKind: hasKind, hasName: true)
  let fixed = 24 + (isFiltered ? 8 : 0) + (hasKind ? 1 : 0) + EventStamp.namePrefixByteCount
  guard let stamp else {
    let isWhole = metadata.count >= fixed && metadata.count == fixed + Int(metadata[fixed - 1])
    return precondition(!isWhole || hasKind && metadata[fixed - 10] > 1, "metadata are refused: \(metadata)")
  }
  precondition(metadata.count == fixed + Int(metadata[fixed - 1]), "metadata of another length")
  precondition(stamp.name == String(decoding: metadata[fixed...], as: UTF8.self), "another name")
  func number(_ offset: Int) -> UInt64 { metadata[offset..<offset + 8].reduce(0) { $0 << 8 | UInt64($1) } }
  precondition(stamp.id == number(0) && stamp.time == number(8) && stamp.position == number(fixed - 9))
  precondition(stamp.missedCount == number(isFiltered ? 24 : 16))
}

/// The position of a marker is the one from which a client resumes, whatever its number.
private func checkOptions(_ json: [UInt8], _ metadata: [UInt8]) {
  if let options = try? SubscribeOptions(json: json) {
    precondition(
      (try? SubscribeOptions(json: options.json))?.json == options.json, "options changed when they were written")
  }
  let position = metadata.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
  var options = SubscribeOptions(from: .after(id: position), marker: true)
  (options.names, options.gaps) = (true, true)
  let format = EventFormat(.rsocket, ids: true, completes: false, counts: false, hasKind: true, hasName: true)
  var bytes = [UInt8](repeating: 0, count: 512)
  let count = bytes.withUnsafeMutableBytes { bytes in
    [UInt64(0), 0].withUnsafeBytes {
      EventWriter(format).writeMarker(
        $0, .init(position: position), upTo: position, for: RequestID(1), at: bytes.baseAddress!)
    }.byteCount
  }
  let frame = bytes.withUnsafeBytes { try? Frame.decode(UnsafeRawBufferPointer(rebasing: $0[3..<count])) }
  guard case .payload(_, let payload, _, _, _)? = frame,
    let stamp = EventStamp(payload.metadata ?? [], hasKind: true, hasName: true)
  else { preconditionFailure("a marker that cannot be read") }
  precondition(stamp.kind == .marker && stamp.position == position && stamp.name?.isEmpty == true, "another marker")
  guard let read = try? SubscribeOptions(json: options.json) else { return precondition(position > 1 << 60) }
  precondition(read.from.resumeTime == position, "another position")
}
