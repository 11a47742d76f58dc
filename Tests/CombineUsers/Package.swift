// swift-tools-version: 6.2
import PackageDescription

/// Programs of people who come from Combine: they change an import, nothing else, whatever the language mode of their
/// package. Built and run by deploy/test; each ends badly where something is not as Combine has it.
let package = Package(
  name: "CombineUsers",
  dependencies: [.package(name: "streamd", path: "../..")],
  targets: [
    .executableTarget(
      name: "Five", dependencies: [.product(name: "ReactiveFoundation", package: "streamd")],
      swiftSettings: [.swiftLanguageMode(.v5)]),
    .executableTarget(
      name: "Six", dependencies: [.product(name: "Reactive", package: "streamd")],
      swiftSettings: [.swiftLanguageMode(.v6)]),
    .executableTarget(
      name: "Fetching",
      dependencies: [
        .product(name: "Reactive", package: "streamd"), .product(name: "StreamSources", package: "streamd"),
      ],
      swiftSettings: [.swiftLanguageMode(.v6)]),
  ]
)
