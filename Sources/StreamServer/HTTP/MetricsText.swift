/// The format of metrics.
enum MetricsFormat: UInt8, CaseIterable, Sendable {
  /// Source: Prometheus, "Exposition formats", text-based format 0.0.4.
  case prometheus
  /// Source: OpenMetrics 1.0, "Text format".
  case openMetrics

  var mediaType: String {
    switch self {
    case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
    case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
    }
  }
}

/// Metrics as text: families of samples, in the order in which they are added.
struct MetricsText {
  /// The meaning of a family's values.
  enum Kind: String {
    /// Increases from the start of the process; the family's name ends with `_total`.
    case counter
    case gauge
    case histogram
  }

  enum Value {
    case number(UInt64)
    /// Written in seconds.
    case microseconds(UInt64)
  }

  let format: MetricsFormat
  private var bytes: [UInt8] = []

  init(_ format: MetricsFormat) { self.format = format }

  /// Adds a family of one sample without labels; none if there is no value.
  mutating func add(_ name: String, _ kind: Kind, _ help: String, _ value: Value?) {
    guard let value else { return }
    add(name, kind, help, [(labels: [], value: value)])
  }

  /// Adds a family; none if it has no samples.
  ///
  /// - Parameters:
  ///   - name: the name of the samples.
  ///   - help: one sentence without line feeds, backslashes and quotation marks.
  ///   - samples: with labels from `label`, each of them once.
  mutating func add(_ name: String, _ kind: Kind, _ help: String, _ samples: [(labels: [UInt8], value: Value)]) {
    guard !samples.isEmpty else { return }
    begin(name, kind, help)
    for (labels, value) in samples { add(name, labels, value) }
  }

  /// Adds a family of histograms of durations, in seconds; none if it has no samples.
  mutating func addHistogram(
    _ name: String, _ help: String, _ samples: [(labels: [UInt8], value: UpstreamFigures.Histogram)]
  ) {
    guard !samples.isEmpty else { return }
    begin(name, .histogram, help)
    for (labels, histogram) in samples {
      var count: UInt64 = 0
      for (index, own) in histogram.counts.enumerated() {
        count += own
        let bounds = UpstreamFigures.Histogram.bounds
        let bound = index < bounds.count ? Self.seconds(bounds[index]) : "+Inf"
        add(name + "_bucket", labels.dropLast() + Array(",le=\"\(bound)\"}".utf8), .number(count))
      }
      add(name + "_sum", labels, .microseconds(histogram.sum))
      add(name + "_count", labels, .number(count))
    }
  }

  private mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
    // In OpenMetrics a counter's family lacks the suffix that its samples have.
    let family = kind == .counter && format == .openMetrics ? String(name.dropLast("_total".count)) : name
    bytes += "# HELP \(family) \(help)\n# TYPE \(family) \(kind.rawValue)\n".utf8
  }

  private mutating func add(_ name: String, _ labels: [UInt8], _ value: Value) {
    bytes += name.utf8
    bytes += labels
    bytes.append(UInt8(ascii: " "))
    switch value {
    case .number(let number): bytes += String(number).utf8
    case .microseconds(let count): bytes += Self.seconds(count).utf8
    }
    bytes.append(UInt8(ascii: "\n"))
  }

  private static func seconds(_ microseconds: UInt64) -> String {
    let fraction = String(microseconds % 1_000_000)
    return "\(microseconds / 1_000_000).\(String(repeating: "0", count: 6 - fraction.utf8.count))\(fraction)"
  }

  /// The text with its end.
  consuming func finished() -> [UInt8] {
    if format == .openMetrics { bytes += "# EOF\n".utf8 }
    return bytes
  }

  /// A label. Both formats escape the same characters of its value.
  static func label(_ name: StaticString, _ value: String) -> [UInt8] {
    var label = Array("{\(name)=\"".utf8)
    for byte in value.utf8 {
      switch byte {
      case UInt8(ascii: "\\"), UInt8(ascii: "\""): label += [UInt8(ascii: "\\"), byte]
      case UInt8(ascii: "\n"): label += "\\n".utf8
      case _: label.append(byte)
      }
    }
    return label + "\"}".utf8
  }
}
